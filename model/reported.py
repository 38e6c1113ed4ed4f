"""Reported figures: what a published acceptance says in tokens per round, and back.

Each conversion names the quantity and when it holds. `tokens` is tokens per round, bonus included; `draft_tokens` is g.
"""


def tokens_from_acceptance_rate(rate: float, draft_tokens: int) -> float:
    """Tokens per round from accepted / drafted, if every draft is full: 1 + g x rate (derived).

    The rate is no property of a pair: it falls with g by construction. Raises ValueError outside [0, 1] or for g < 1.
    """
    _need_draft(draft_tokens)
    if not 0 <= rate <= 1:
        raise ValueError(f"an acceptance rate is a fraction, not {rate}")
    return 1 + draft_tokens * rate


def acceptance_rate_from_tokens(tokens: float, draft_tokens: int) -> float:
    """accepted / drafted = (tokens - 1) / g at full drafts. Raises ValueError outside 1 <= tokens <= g + 1."""
    _need_possible(tokens, draft_tokens)
    return (tokens - 1) / draft_tokens


def tokens_from_alpha(alpha: float, draft_tokens: int) -> float:
    """Leviathan's expected tokens for i.i.d. acceptance alpha: 1 + alpha + ... + alpha^g (arXiv 2211.17192, eq. 1).

    Raises ValueError outside [0, 1] or for g < 1.
    """
    _need_draft(draft_tokens)
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is a probability, not {alpha}")
    return float(sum(alpha**j for j in range(draft_tokens + 1)))


def alpha_from_tokens(tokens: float, draft_tokens: int) -> float:
    """The constant alpha that gives these tokens per round: equation 1 solved. Not accepted / drafted.

    Raises ValueError outside 1 <= tokens <= g + 1.
    """
    _need_possible(tokens, draft_tokens)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_from_alpha(middle, draft_tokens) < tokens else (low, middle)
    return high


def tokens_from_accepted_length(length: float, counts_bonus: bool) -> float:
    """Tokens per round from a mean accepted length: reports differ in whether the target's own token is in it.

    Raises ValueError where a length that counts the bonus token is below 1, or any is below 0.
    """
    tokens = length if counts_bonus else length + 1
    if tokens < 1:
        raise ValueError(f"a round emits one token at least: {length} does not count the bonus token")
    return tokens


def accepted_length_from_tokens(tokens: float, counts_bonus: bool) -> float:
    """The accepted length to report, with or without the bonus token. Raises ValueError for tokens < 1."""
    if tokens < 1:
        raise ValueError(f"a round emits one token at least, not {tokens}")
    return tokens if counts_bonus else tokens - 1


def _need_draft(draft_tokens: int) -> None:
    if draft_tokens < 1:
        raise ValueError("acceptance needs 1 draft token at least")


def _need_possible(tokens: float, draft_tokens: int) -> None:
    _need_draft(draft_tokens)
    if not 1 <= tokens <= draft_tokens + 1:
        raise ValueError(f"{draft_tokens} draft tokens give 1 to {draft_tokens + 1} tokens per round, not {tokens}")
