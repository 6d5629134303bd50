// The form of a new study: what is judged, and how. Runs by their id; files only by the command line.
import { get, post, trying } from "./api.js";
import { command, fill, h } from "./dom.js";

const WAYS = { policies: "Two policies on the same prompts", policy: "One policy, sampled several times", step: "The responses of a logged step" };
const ASKS = { preference: "compare two answers", score: "score each answer, 1 to 7", thumb: "thumbs up or down" };

const field = (label, control, hint = null) => h("label", { class: "field" }, h("span", {}, label), control, hint ? h("small", { class: "soft" }, hint) : null);
const choose = (label, entries) => h("select", { "aria-label": label }, Object.entries(entries).map(([value, text]) => h("option", { value }, text)));
const number = (label, value, min, max, step = "1") => h("input", { type: "number", "aria-label": label, value, min, max, step });

/** A run and one of its policies. */
function policyChoice(label, runs) {
  const run = choose(`${label}: run`, Object.fromEntries(runs.map((one) => [one.id, one.name])));
  const policy = h("select", { "aria-label": `${label}: policy` });
  const found = { run, policy, steps: [], onload: () => {} };
  found.load = async () => {
    const seen = await trying(() => get("/api/studies/choices", { run: run.value }));
    if (!seen) return;
    found.steps = seen.steps;
    const words = { best: seen.best_step === null ? "best" : `best (step ${seen.best_step})`, reference: "reference (before training)" };
    fill(policy, seen.policies.map((one) => h("option", { value: one }, words[one] ?? one)));
    found.onload();
  };
  run.addEventListener("change", found.load);
  return found;
}

/** The form; `made` is called with the job that makes the study. */
export function studyForm(runs, store, made, close) {
  const name = h("input", { type: "text", required: true, maxlength: "200", placeholder: "Such as: best against reference" });
  const way = choose("What is judged", WAYS);
  const ask = choose("How", ASKS);
  const first = policyChoice("First", runs);
  const second = policyChoice("Second", runs);
  const samples = number("Answers per prompt", "2", "1", "100");
  const step = h("select", { "aria-label": "Step" });
  const count = number("At most so many prompts", "50", "1", "100000");
  const wanted = number("Judgements per item", "1", "1", "1000");
  const repeats = number("Repeats, percent", "5", "0", "50");
  const axes = h("input", { type: "text", "aria-label": "Axes", placeholder: "helpful, honest" });
  const guidelines = h("textarea", { maxlength: "20000", "aria-label": "Guidelines", placeholder: "What annotators should know" });
  const again = h("input", { type: "checkbox" });
  const begin = h("button", { class: "main" }, "Make the study");
  const sides = h("div", { class: "fields" });

  first.onload = () => { fill(step, first.steps.map((one) => h("option", { value: one }, `step ${one}`))); draw(); };
  // the reference is that of the run beside it
  second.onload = () => { const other = [...second.policy.options].find((one) => one.value === "reference"); if (other && second.run.value === first.run.value) second.policy.value = "reference"; };

  function draw() {
    const policyOf = (label, one) => field(label, h("span", { class: "together" }, one.run, one.policy));
    fill(sides, way.value === "policies" ? [policyOf("First policy", first), policyOf("Second policy", second)]
      : way.value === "policy" ? [policyOf("Policy", first), field("Answers per prompt", samples)]
        : [field("Run", first.run), field("Step", first.steps.length ? step : h("span", { class: "soft" }, "This run has logged no tables. Its setting table_every says how often one is written."))]);
    axesField.classList.toggle("hidden", ask.value !== "score");
    repeatsField.classList.toggle("hidden", ask.value !== "preference");
    samples.min = ask.value === "preference" ? "2" : "1";
    begin.disabled = way.value === "step" && !first.steps.length;
  }

  const axesField = field("Axes besides the whole", axes, "separated by commas; optional");
  const repeatsField = field("Asked again, sides swapped", h("span", { class: "together" }, repeats, "%"), "shows how consistent people are");
  const form = h("form", { class: "panel study-form" }, h("h2", {}, "New study"),
    h("div", { class: "fields" }, field("Name", name), field("What is judged", way), field("How", ask)), sides,
    h("div", { class: "fields" }, field("At most so many prompts", count, "policies: of those that were held out"), field("Judgements per item", wanted, "each of another annotator"), repeatsField, axesField),
    field("Guidelines", guidelines, "shown to annotators on demand"),
    h("label", {}, again, "Ask again at the end about items on which annotators differ"),
    h("div", { class: "together" }, begin, h("button", { type: "button", onclick: close }, "Close")),
    h("details", {}, h("summary", {}, "From a file"), h("p", { class: "soft" }, "A browser never names files of this machine. In a terminal:"), command(`ppolm feedback study NAME --file pairs.jsonl --store ${store}`)));
  for (const one of [way, ask]) one.addEventListener("change", draw);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    begin.disabled = true;
    const side = (one) => ({ run: one.run.value, policy: one.policy.value });
    const job = await trying(() => post("/api/studies/make", {
      name: name.value, way: way.value, ask: ask.value, first: side(first), second: side(second), samples: way.value === "policy" ? Number(samples.value) : null,
      step: way.value === "step" ? Number(step.value) : null, count: count.value ? Number(count.value) : null, wanted: Number(wanted.value), repeats: Number(repeats.value) / 100,
      axes: ask.value === "score" ? axes.value.split(",").map((one) => one.trim()).filter(Boolean) : [], guidelines: guidelines.value, second_look: again.checked,
    }));
    begin.disabled = false;
    if (job) made(job);
  });
  draw();
  if (runs.length) { first.load(); second.load(); }
  return form;
}
