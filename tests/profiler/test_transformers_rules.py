"""Acceptance rules: chances against closed forms, and that neither changes the law of what is decoded."""

from typing import cast

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from specgauge.profiler.engines.transformers import rules
from specgauge.profiler.engines.transformers.decoder import Decoder
from specgauge.profiler.engines.transformers.drafters import ModelDrafter
from specgauge.profiler.engines.transformers.rounds import Loop
from specgauge.profiler.engines.transformers.sampling import Sampler
from specgauge.profiler.records import Sampling

from .torch_models import TableDecoder, perturbed, tiny_llama

DRAWS = 200_000
SAMPLED = Sampling(temperature=0.8, top_k=4, top_p=0.9, min_p=0.0)
RULES = {"ratio test": True, "sample and compare": False}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def laws(seed: int, size: int = 6) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(seed)
    return dice.dirichlet(np.ones(size)), dice.dirichlet(np.ones(size))


def many(law: np.ndarray, places: int) -> torch.Tensor:
    return torch.tensor(law, dtype=torch.float32).expand(DRAWS, places, -1)


def close(share: float, expected: float) -> bool:
    return abs(share - expected) < 5 * (expected * (1 - expected) / DRAWS) ** 0.5 + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_ratio_test_accepts_the_overlap_of_both_laws(seed):
    p, q = laws(seed)
    drafted = torch.multinomial(many(q, 1)[:, 0], 1, generator=generator(seed))
    verdict = rules.ratio_test(many(p, 2), many(q, 1), drafted, generator(seed + 1))
    assert close(verdict.accepted.float().mean().item(), np.minimum(p, q).sum())


@pytest.mark.parametrize("seed", range(4))
def test_what_leaves_the_ratio_test_first_has_the_targets_law(seed):
    p, q = laws(seed)
    drafted = torch.multinomial(many(q, 1)[:, 0], 1, generator=generator(seed))
    verdict = rules.ratio_test(many(p, 2), many(q, 1), drafted, generator(seed + 1))
    first = torch.where(verdict.accepted > 0, drafted[:, 0], verdict.token)
    shares = np.bincount(first.numpy(), minlength=p.size) / DRAWS
    assert all(close(share, chance) for share, chance in zip(shares, p))


@pytest.mark.parametrize("seed", range(4))
def test_comparing_accepts_a_fixed_proposal_by_its_own_chance_and_a_drawn_one_by_sum_pq(seed):
    p, q = laws(seed)
    own = torch.multinomial(torch.tensor(p), 2 * DRAWS, replacement=True, generator=generator(seed)).reshape(DRAWS, 2)
    likeliest = torch.full((DRAWS, 1), int(q.argmax()))
    drawn = torch.multinomial(torch.tensor(q), DRAWS, replacement=True, generator=generator(seed + 1))[:, None]
    assert close(rules.compare(own, likeliest).accepted.float().mean().item(), p[q.argmax()])
    assert close(rules.compare(own, drawn).accepted.float().mean().item(), float(p @ q))


def test_equal_laws_accept_everything_and_nothing_drafted_gives_the_targets_token():
    p, _ = laws(0)
    drafted = torch.multinomial(torch.tensor(p), 3 * DRAWS, replacement=True, generator=generator()).reshape(DRAWS, 3)
    assert (rules.ratio_test(many(p, 4), many(p, 3), drafted, generator(1)).accepted == 3).all()
    nothing = torch.zeros(5, 0, dtype=torch.long)
    own = torch.arange(5)[:, None]
    assert rules.compare(own, nothing).token.tolist() == [0, 1, 2, 3, 4]
    assert rules.compare(own, nothing).accepted.tolist() == [0] * 5


def test_a_wrong_token_hides_the_right_ones_behind_it():
    own = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]])
    drafted = torch.tensor([[1, 2, 3], [1, 9, 3], [9, 2, 3]])
    verdict = rules.compare(own, drafted)
    assert verdict.accepted.tolist() == [3, 1, 0]
    assert verdict.token.tolist() == [4, 2, 1]


def test_forced_rates_are_cumulative_and_the_last_one_holds_on():
    own = torch.arange(5).expand(DRAWS, 5)
    accepted = rules.forced(own, (0.8, 0.5), generator()).accepted
    shares = [(accepted >= depth).float().mean().item() for depth in (1, 2, 3, 4)]
    assert all(close(share, rate) for share, rate in zip(shares, (0.8, 0.5, 0.5, 0.5)))
    assert (rules.forced(own, (0.0,) * 4, generator()).accepted == 0).all()


def warped(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Temperature, top_k, top_p as their definitions say, in that order; an oracle of its own."""
    scaled = logits / sampling.temperature
    order = np.argsort(-scaled)
    kept = order[: sampling.top_k]
    law = np.exp(scaled[kept] - scaled[kept].max())
    law /= law.sum()
    inside = np.concatenate([[True], np.cumsum(law)[:-1] < sampling.top_p])
    found = np.zeros(logits.size)
    found[kept[inside]] = law[inside] / law[inside].sum()
    return found


def sequence_law(law_behind, prompt: tuple[int, ...], length: int) -> dict[tuple[int, ...], float]:
    """Chances of all texts of `length` behind `prompt`, by going through them."""
    found = {(): 1.0}
    for _ in range(length):
        found = {
            (*text, token): chance * part
            for text, chance in found.items()
            for token, part in enumerate(law_behind((*prompt, *text)))
            if part > 0
        }
    return found


def distance(counts: np.ndarray, others: np.ndarray) -> float:
    return float(np.abs(counts / counts.sum() - others / others.sum()).sum() / 2)


def bound_of(exact: np.ndarray, draws: int) -> float:
    """95th percentile of the distance between two direct samples."""
    dice = np.random.default_rng(5)
    pairs = (dice.multinomial(draws, exact, size=2) for _ in range(400))
    return float(np.percentile([distance(*pair) for pair in pairs], 95))


def law_is_kept(replies, exact: dict[tuple[int, ...], float]) -> bool:
    """Whether `replies` lie as near to a direct sample as direct samples to each other."""
    places = {text: i for i, text in enumerate(exact)}
    chances = np.array(list(exact.values()))
    counts = np.bincount([places.get(reply, len(places)) for reply in replies], minlength=len(places) + 1)
    if counts[len(places)]:
        return False
    direct = np.random.default_rng(9).multinomial(len(replies), chances / chances.sum())
    return distance(counts[: len(places)], direct) <= bound_of(chances / chances.sum(), len(replies))


def table_loop(streams: int, drawn: bool, seed: int, rule=None) -> Loop:
    dice = np.random.default_rng(3)
    target, draft = dice.normal(0, 1.5, (6, 6)), dice.normal(0, 1.5, (6, 6))
    sampler = Sampler(SAMPLED)
    loop = Loop(cast(Decoder, TableDecoder(target, streams)), sampler, drawn=drawn, seed=seed)
    loop.drafter = ModelDrafter(
        cast(Decoder, TableDecoder((target + draft) / 2, streams)), sampler, loop.generator if drawn else None
    )
    return loop


def table_law(length: int) -> dict[tuple[int, ...], float]:
    target = np.random.default_rng(3).normal(0, 1.5, (6, 6))
    return sequence_law(lambda text: warped(target[text[-1]], SAMPLED), (2, 1), length)


@pytest.mark.parametrize("drawn", RULES.values(), ids=RULES)
def test_twenty_thousand_speculative_texts_of_table_models_have_the_targets_law(drawn):
    replies = table_loop(20_000, drawn, seed=1).replies([(2, 1)] * 20_000, 5, draft_tokens=3).tokens
    assert law_is_kept(replies, table_law(5))


@pytest.mark.parametrize(
    "broken",
    [
        lambda p, q, drafted, dice: rules.ratio_test(q[:, [0, 1, 2, 2]], p[:, :-1], drafted, dice),
        lambda p, q, drafted, dice: rules.compare(p.argmax(-1), drafted),
        lambda p, q, drafted, dice: rules.ratio_test(p, torch.full_like(q, 0.3), drafted, dice),
    ],
    ids=["laws swapped", "likeliest token", "constant q"],
)
def test_a_broken_rule_fails_the_same_test(monkeypatch, broken):
    whole = rules.ratio_test
    guard = lambda p, q, drafted, dice: whole(p, q, drafted, dice) if q.shape[1] < 3 else broken(p, q, drafted, dice)
    loop = table_loop(20_000, True, seed=1)
    from specgauge.profiler.engines.transformers import rounds

    class Broken:
        Verdict, compare, forced = rules.Verdict, staticmethod(rules.compare), staticmethod(rules.forced)
        ratio_test = staticmethod(guard)

    monkeypatch.setattr(rounds, "rules", Broken)
    assert not law_is_kept(loop.replies([(2, 1)] * 20_000, 5, draft_tokens=3).tokens, table_law(5))


@pytest.mark.parametrize("drawn", RULES.values(), ids=RULES)
def test_two_thousand_speculative_texts_of_a_tiny_torch_model_have_the_targets_law(drawn):
    torch.set_num_threads(1)
    model, prompt, streams = tiny_llama(), (3, 5, 7), 500
    draft, sampler = perturbed(model, 0.3), Sampler(SAMPLED)
    replies = []
    for batch in range(4):
        loop = Loop(Decoder(model, streams, 16), sampler, drawn=drawn, seed=batch)
        loop.drafter = ModelDrafter(Decoder(draft, streams, 16), sampler, loop.generator if drawn else None)
        replies += loop.replies([prompt] * streams, 4, draft_tokens=3).tokens
    with torch.inference_mode():
        exact = sequence_law(
            lambda text: warped(model(torch.tensor([text])).logits[0, -1].double().numpy(), SAMPLED), prompt, 4
        )
    assert law_is_kept(replies, exact)
    assert len(set(replies)) > 20
