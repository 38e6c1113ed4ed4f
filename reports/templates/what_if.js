"use strict";
// Speeds at another acceptance, draft length or context: the arithmetic of model/what_if.py, model/cost.py and model/steps.py
// over the tables of a recommendation (calibrate/what_if_records.py). The tests hold both against each other.
const whatIf = (() => {
  const HALVINGS = 60;

  // steps.StepTable: one width's seconds by context, at `context`.
  function alongContext(contexts, column, context) {
    if (contexts.length === 1) return column[0];
    let left = 0;
    while (left < contexts.length - 2 && contexts[left + 1] < context) left += 1;
    const start = contexts[left], end = contexts[left + 1];
    const inside = start <= context && context <= end;
    const rise = inside ? column[left + 1] - column[left] : Math.max(column[left + 1] - column[left], 0);
    const nearest = context > end ? column[left + 1] : column[left];
    const base = context > end ? nearest - rise : column[left];
    const seconds = base + ((context - start) / (end - start)) * rise;
    return inside ? seconds : Math.max(seconds, nearest / 4);
  }

  function passSeconds(table, width, context) {
    return alongContext(table.contexts, table.seconds[table.widths.indexOf(width)], context);
  }

  // cost.WholeRounds: level beyond the contexts.
  function ratioAt(contexts, column, context) {
    if (contexts.length === 1) return column[0];
    let left = 0;
    while (left < contexts.length - 2 && contexts[left + 1] < context) left += 1;
    const share = (context - contexts[left]) / (contexts[left + 1] - contexts[left]);
    const kept = Math.min(Math.max(share, 0), 1);
    return column[left] * (1 - kept) + column[left + 1] * kept;
  }

  const terms = {
    draft: (p, g, c) => passSeconds(p.draft, 1, c + (g - 1) / 2) * g,
    draft_catch_up: (p, g, c) => passSeconds(p.draft, 2, Math.max(c - 1, 0)),
    draft_further: (p, g, c) => passSeconds(p.draft, 1, c + g / 2) * (g - 1),
    draft_batch: (p, g, c) => passSeconds(p.draft, g + 1, c),
    verification: (p, g, c) => passSeconds(p.target, g + 1, c),
    overhead: (p, g) => p.overhead_seconds + p.overhead_seconds_per_token * g,
    round: (p, g, c) => passSeconds(p.target, 1, c) * ratioAt(p.ratio_contexts, p.ratio[p.draft_tokens.indexOf(g)], c),
  };

  function roundSeconds(prices, draftTokens, context) {
    if (draftTokens === 0) return passSeconds(prices.target, 1, context);
    const sum = prices.recipe.reduce((total, name) => total + terms[name](prices, draftTokens, context), 0);
    return sum * prices.correction[prices.draft_tokens.indexOf(draftTokens)];
  }

  // what_if.moved: the odds of every hazard by one constant, then by `factor`.
  function moved(hazard, first, factor) {
    return hazard.map((h) => {
      const up = factor * first * (1 - hazard[0]) * h, down = (1 - first) * hazard[0] * (1 - h);
      return up / (up + down);
    });
  }

  function survivalOf(hazard) {
    let product = 1;
    return hazard.map((h) => (product *= h));
  }

  function lengthsOf(drafter) { return [0, ...drafter.prices.draft_tokens]; }

  function tokens(drafter, workload, place, first) {
    const length = lengthsOf(drafter)[place];
    const survival = survivalOf(moved(workload.hazard, first, workload.anchor[place]).slice(0, length));
    return 1 + workload.offered[place] * survival.reduce((sum, s) => sum + s, 0);
  }

  function seconds(drafter, workload, place, context) {
    const whole = roundSeconds(drafter.prices, lengthsOf(drafter)[place], context);
    const plain = roundSeconds(drafter.prices, 0, context);
    const mean = workload.offered[place] * whole + (1 - workload.offered[place]) * plain;
    if (drafter.prices.ratio.length) return mean * workload.reply_factor;
    return mean + (workload.reply_factor - 1) * plain;
  }

  // Tokens/s by draft length, plain decoding first.
  function speeds(drafter, workload, first, context) {
    return lengthsOf(drafter).map((length, place) =>
      (workload.scale * tokens(drafter, workload, place, first)) / seconds(drafter, workload, place, context));
  }

  // Acceptance of the first token at which the length at `place` is as fast as plain decoding; null where none is enough.
  function breakEven(drafter, workload, place, context) {
    const needed = seconds(drafter, workload, place, context) / seconds(drafter, workload, 0, context);
    if (tokens(drafter, workload, place, 1) < needed) return null;
    let low = 0, high = 1;
    if (tokens(drafter, workload, place, low) >= needed) return 0;
    for (let turn = 0; turn < HALVINGS; turn += 1) {
      const middle = (low + high) / 2;
      if (tokens(drafter, workload, place, middle) >= needed) high = middle; else low = middle;
    }
    return (low + high) / 2;
  }

  // The fastest length, plain decoding included; lengths of doubtful cost only where nothing else is there.
  function best(workload, speed) {
    const order = speed.map((value, place) => place).sort((a, b) => speed[b] - speed[a]);
    const trusted = order.filter((place) => !workload.doubtful[place]);
    return trusted.length ? trusted[0] : order[0];
  }

  return { lengthsOf, survivalOf, moved, speeds, breakEven, best };
})();

if (typeof document === "undefined") {
  module.exports = whatIf;
} else {
  (() => {
    const section = document.getElementById("what-if");
    if (!section) return;
    const data = JSON.parse(section.querySelector("script.what-if-data").textContent);
    const plot = section.querySelector(".plot");
    const at = (name) => section.querySelector("[data-part=" + name + "]");
    const controls = { drafter: at("drafter"), workload: at("workload"), first: at("first"), length: at("length"), context: at("context") };
    let state;

    function short(value) { return Math.abs(value) >= 99.95 ? value.toFixed(0) : Math.abs(value) >= 9.995 ? value.toFixed(1) : value.toFixed(2); }
    function percent(share) { return (100 * share).toFixed(0) + " %"; }
    function count(value) { return Math.round(value).toLocaleString("en"); }
    function drafter() { return data.drafters[state.drafter]; }
    function workload() { return drafter().workloads[state.workload]; }
    function said(length) { return length === 0 ? "plain" : length + (length === 1 ? " draft token" : " draft tokens"); }

    function fill(select, names, chosen) {
      select.replaceChildren(...names.map((name, place) => {
        const option = document.createElement("option");
        option.value = place;
        option.textContent = name;
        return option;
      }));
      select.value = chosen;
    }

    // Everything as profiled; the sliders show it rounded, the state keeps it exact until a slider is moved.
    function rest(place, work) {
      const own = data.drafters[place], mine = own.workloads[work];
      state = { drafter: place, workload: work, first: mine.hazard[0], context: mine.context, place: mine.start, moved: false };
      fill(controls.drafter, data.drafters.map((one) => one.name), place);
      fill(controls.workload, own.workloads.map((one) => one.workload), work);
      controls.first.value = mine.hazard[0];
      controls.length.max = whatIf.lengthsOf(own).length - 1;
      controls.length.value = mine.start;
      const alone = own.known_contexts.length === 1;
      controls.context.disabled = alone;
      controls.context.max = Math.ceil(Math.max(own.trusted_context, mine.context));
      controls.context.step = Math.max(1, Math.round(controls.context.max / 256));
      controls.context.value = mine.context;
      at("one-context").hidden = !alone;
    }

    function command() {
      const words = ["specgauge predict --draft-tokens " + whatIf.lengthsOf(drafter())[state.place]];
      if (drafter().takes_context) words.push("--context " + Math.round(state.context));
      if (drafter().takes_survival && state.moved) {
        const survival = whatIf.survivalOf(whatIf.moved(workload().hazard, state.first, 1));
        words.push("--survival " + survival.map((s) => s.toFixed(4)).join(","));
      }
      return words.join(" ");
    }

    function answer(speed, place, fastest, even) {
      const lengths = whatIf.lengthsOf(drafter());
      const beyond = Math.max(...drafter().known_contexts);
      const parts = [
        said(lengths[place]) + ": " + short(speed[place]) + " tokens/s; plain decoding there " + short(speed[0]) + ".",
        fastest === 0 ? "Plain decoding is fastest there." : "Fastest: " + said(lengths[fastest]) + ", " + short(speed[fastest]) + " tokens/s.",
      ];
      if (place > 0) {
        parts.push(even === null ? "Plain decoding is faster whatever is accepted." : even === 0 ? "No slower than plain decoding whatever is accepted."
          : "Break-even: the first token accepted " + percent(even) + " of the time.");
      }
      if (workload().doubtful[place]) parts.push("The cost of this length is extrapolated.");
      if (drafter().known_contexts.length > 1 && state.context > beyond) parts.push("Beyond the longest context that was timed, " + count(beyond) + ".");
      return parts.join(" ");
    }

    function show() {
      const lengths = whatIf.lengthsOf(drafter()), mine = workload(), place = state.place;
      const speed = whatIf.speeds(drafter(), mine, state.first, state.context);
      const fastest = whatIf.best(mine, speed);
      const even = place > 0 ? whatIf.breakEven(drafter(), mine, place, state.context) : null;
      at("first-text").textContent = percent(state.first);
      at("length-text").textContent = said(lengths[place]);
      at("context-text").textContent = count(state.context) + " tokens";
      controls.first.setAttribute("aria-valuetext", percent(state.first));
      controls.length.setAttribute("aria-valuetext", said(lengths[place]));
      controls.context.setAttribute("aria-valuetext", count(state.context) + " tokens");
      at("answer").textContent = answer(speed, place, fastest, even);
      at("command").textContent = command();
      const hover = lengths.map((length, i) => said(length) + ": " + short(speed[i]) + " tokens/s" + (mine.doubtful[i] ? ", extrapolated" : ""));
      const ends = [lengths[0], lengths[lengths.length - 1]];
      const band = mine.band.x.length ? mine.band : { x: [null], y: [null] };
      const lines = {
        x: [band.x, lengths, ends, lengths, [lengths[place]], [lengths[fastest]]],
        y: [band.y, mine.tokens_per_second, [speed[0], speed[0]], speed, [speed[place]], [speed[fastest]]],
        hovertext: [[], lengths.map((length, i) => said(length) + ", as profiled: " + short(mine.tokens_per_second[i]) + " tokens/s"),
          ["plain: " + short(speed[0]) + " tokens/s", "plain: " + short(speed[0]) + " tokens/s"], hover, [hover[place] + ", at the sliders"], [hover[fastest] + ", fastest"]],
      };
      return Plotly.restyle(plot, lines, [0, 1, 2, 3, 4, 5]);
    }

    controls.drafter.addEventListener("change", () => {
      const wanted = workload().workload, place = Number(controls.drafter.value);
      rest(place, Math.max(0, data.drafters[place].workloads.findIndex((one) => one.workload === wanted)));
      show();
    });
    controls.workload.addEventListener("change", () => { rest(state.drafter, Number(controls.workload.value)); show(); });
    controls.first.addEventListener("input", () => { state.first = Number(controls.first.value); state.moved = true; show(); });
    controls.length.addEventListener("input", () => { state.place = Number(controls.length.value); show(); });
    controls.context.addEventListener("input", () => { state.context = Number(controls.context.value); show(); });
    at("reset").addEventListener("click", () => { rest(state.drafter, state.workload); show(); });

    rest(data.start.drafter, data.start.workload);
    section.querySelector(".what-if").hidden = false;
    // The page draws its figures first; the curve at rest is drawn by then.
    const drawn = setInterval(() => { if (plot.data) { clearInterval(drawn); show(); } }, 30);
  })();
}
