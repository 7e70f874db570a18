"""What the README says is so, and the numbers of the documentation; tests/test_docs.py has the rest of docs/."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import shiftnp
from shiftnp.models import MODELS
from shiftnp.tasks import TASKS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MEASURED = (ROOT / "docs/measured.md").read_text()
CEILINGS = (ROOT / "docs/explain/ceilings.md").read_text()


def test_the_example_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "points: 60 (x0, x1 -> y0)" in capsys.readouterr().out
    assert (names["low"] < names["high"]).all()
    assert names["curves"].shape == (10, 5)


def test_it_fits_on_two_screens():
    assert 80 <= len(README.splitlines()) <= 125


def test_figures_are_the_measured_ones():
    """Every number that comes from a file in results/ is the one in that file."""
    scores = json.loads((ROOT / "results/ceiling-gp-1d.json").read_text())["scores"]
    for name in ("oracle", "mixture, 80 + 1500 + 80 nodes", "gaussian, 80 + 1500 + 80 nodes"):
        assert f"| {scores[name]['mean']:.4f} | {scores[name]['standard error']:.4f} |" in CEILINGS
    assert f"{scores['mixture, 80 + 80 + 80 nodes']['mean']:.4f}" in CEILINGS
    flow = json.loads((ROOT / "results/kolmogorov.json").read_text())
    assert f"{flow['seconds per trajectory']} s on two cores" in (ROOT / "docs/reference/tasks.md").read_text()


def test_tables_of_results_are_the_measured_ones(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results_page

    page = results_page.PAGE.read_text()
    assert results_page.fill(page) == page
    runs = json.loads((ROOT / "results/gp-1d/gp-1d.json").read_text())["runs"]
    gaps = [
        run["evaluation"]["sets"]["delta-0.0"]["gap"]["mean"]
        for run in runs
        if run["evaluation"]["row"] == "te-tnp-rotary"
    ]
    assert f"Gaussian on `gp-1d` is {sum(gaps) / len(gaps):.3f} (three seeds," in " ".join(MEASURED.split())
    assert len(gaps) == 3


def test_scores_of_the_paper_are_said_to_be_of_other_test_tasks():
    prose = " ".join((ROOT / "docs/results.md").read_text().split())
    quoted = re.findall(r"in the paper[^.;()]*\(([^()]*\d\.\d\d[^()]*)\)", prose)
    quoted += re.findall(r"\(([^()]*\d\.\d\d in the paper[^()]*)\)", prose)
    assert len(quoted) >= 6
    for found in quoted:
        assert "other test tasks" in found


def test_scores_on_real_data_are_the_measured_ones():
    found = json.loads((ROOT / "results/zero-shot.json").read_text())["summary"]["all"]
    prose = " ".join(MEASURED.split())
    gp, two = found["against gp"], found["against two-materns"]
    ((_, worst),) = gp["worst data set"].items()
    assert f"on {gp['data sets']} data sets of which" in prose
    assert f"CRPS {gp['crps ratio']:.3f} times the GP's in geometric mean (worst data set {worst:.3f}," in prose
    gain = gp["median log-likelihood difference"]  # on some data sets the GP fails altogether
    assert f"log-likelihood {gain:.3f} nats per observation higher (median over data sets)" in prose
    unseen = json.loads((ROOT / "results/zero-shot.json").read_text())["summary"]["not looked at"]
    other = unseen["against gp"]
    ((_, worst),) = other["worst data set"].items()
    assert f"On the {unseen['data sets']} of them that were not looked at before" in prose
    assert f": CRPS {other['crps ratio']:.3f} times the GP's, worst {worst:.3f}." in prose
    assert f"90 % intervals cover {100 * found['coverage']['regressor']['all']['90']:.0f} % of" in prose
    assert f"two Matern kernels CRPS is {two['crps ratio']:.3f} times the GP's, on {two['data sets']} of" in prose
    alone = json.loads((ROOT / "results/zero-shot-network.json").read_text())["summary"]["all"]["against gp"]
    assert (
        f"has a CRPS of {alone['crps ratio']:.3f} times the GP's and {max(alone['worst data set'].values()):.3f} on"
        in prose
    )
    assert gp["times faster, processor"] < 1  # on one thread "the GP needs less processor time"
    speed = list(json.loads((ROOT / "results/regressor-speed.json").read_text())["observations"].values())
    a, b, c = (f"{entry['regressor']:.2f}" for entry in speed)
    assert f": {a} with 200, {b} with 1,000 and {c} with 5,000 observations" in prose
    a, b, c = (f"{entry['ratio']:.1f}" for entry in speed)
    assert f"which is {a}, {b} and {c} times faster than the fitted GP" in prose


def test_scores_with_three_inputs_are_the_measured_ones():
    found = json.loads((ROOT / "results/zero-shot-3d.json").read_text())["summary"]["all"]
    prose = " ".join(MEASURED.split())
    gp, two = found["against gp"], found["against two-materns"]
    assert f"on {found['data sets']} data sets (" in prose
    assert f"{found['cases']} cases) CRPS {gp['crps ratio']:.3f} times the GP's, log-likelihood" in prose
    assert f"log-likelihood {gp['log-likelihood difference']:.3f} nats higher" in prose
    assert f"CRPS {two['crps ratio']:.3f} times that of two Matern kernels" in prose
    assert f"90 % intervals cover {100 * found['coverage']['regressor']['all']['90']:.0f} % (" in prose


def test_scores_on_functions_outside_the_prior_are_the_measured_ones():
    found = json.loads((ROOT / "results/held-out-functions.json").read_text())
    for inputs in ("1 input", "2 inputs", "3 inputs"):
        assert len(found[inputs]) == 4
        for name, entry in found[inputs].items():
            gain, ours, gp = entry["gain in log-likelihood"], entry["network"], entry["fitted GP"]
            cover = [f"{100 * each['coverage of 90 % intervals']:.0f} %" for each in (ours, gp)]
            mean = f"{gain['mean']:+.2f} ± {gain['standard error']:.2f}"
            cells = f"{mean} | {gain['median']:+.2f} | {entry['CRPS ratio']:.2f} | {' | '.join(cover)}"
            assert f"| {inputs[0]} | {name} | {cells} |" in MEASURED


def test_many_observations_are_the_measured_ones():
    found = json.loads((ROOT / "results/zero-shot.json").read_text())
    gp = found["summary"]["all"]["against gp"]["by size"]["5000"]
    (case,) = [case for case in found["cases"] if case["size"] == 5000 and "gp" in case]
    cover = case["regressor"]["coverage"]["90"]
    text = (
        f"CRPS {gp['crps ratio']:.3f} times the GP's, RMSE {gp['rmse ratio']:.3f} times, log-likelihood"
        f" {gp['log-likelihood difference']:.3f} nats higher, and 90 % intervals cover {100 * cover:.0f} %"
    )
    assert text in " ".join(MEASURED.split())


def test_the_comparison_with_gaussian_processes_is_the_measured_one():
    for n, entry in json.loads((ROOT / "results/peers.json").read_text())["observations"].items():
        ours, (name, theirs) = entry.pop("regressor"), entry.popitem()
        cells = (
            f"{ours['seconds']:.1f} s | {ours['rmse']:.3f} | {name}, {theirs['seconds']:.1f} s | {theirs['rmse']:.3f}"
        )
        assert f"| {int(n):,} | {cells} |" in MEASURED


def test_the_step_of_a_convcnp_is_the_measured_one():
    found = json.loads((ROOT / "results/convcnp-step.json").read_text())["models"]
    prose = " ".join(MEASURED.split())
    assert f"takes {found['shiftnp']['seconds']:.3f} CPU seconds, and" in prose
    assert f"and {found['neuralprocesses']['seconds']:.3f} with [neuralprocesses]" in prose
    found = json.loads((ROOT / "results/deepsensor-step.json").read_text())["models"]
    deepsensor, convcnp, rotary = (f"{entry['seconds']:.2f}" for entry in found.values())
    assert f"takes {deepsensor} CPU seconds with [DeepSensor]" in prose
    assert f"{convcnp} with our ConvCNP of the same size and {rotary} with a rotary TE-TNP" in prose


def test_what_fine_tuning_does_is_what_was_measured():
    found, page = (json.loads((ROOT / "results/stations.json").read_text()), ROOT / "docs/howto/stations.md")
    prose, after = " ".join(page.read_text().split()), found["after"]
    known, new = (100 * after[f"{name} places"]["90 % intervals cover"]["mean"] for name in ("known", "new"))
    assert f"cover {known:.0f} % at known and {new:.0f} % at new stations" in prose
    assert f"{found['stations']['withheld']} stations and the last {found['days']['withheld']} days" in prose
    assert "the pretrained weights stay" in after["report"]


def test_times_of_joint_samples_are_the_measured_ones():
    found = json.loads((ROOT / "results/sample.json").read_text())
    text = (ROOT / "docs/sampling.md").read_text()
    for title, entry in found["models"].items():
        seconds = [f"{row['cpu_seconds']:.1f}" for row in entry["draws"]]
        assert f"| {title} | {' | '.join(seconds)} |" in text
        assert seconds[0] in MEASURED
    lost = json.loads((ROOT / "results/joint-samples.json").read_text())["models"]
    for entry in lost.values():
        for case in ("1 steps", "4 steps", "8 steps", "16 steps", "causal buffer"):
            assert f"{entry[case]['lost']:.3f} ({entry[case]['standard error']:.3f})" in text


def test_speeds_are_the_measured_ones():
    attention = json.loads((ROOT / "results/attention.json").read_text())
    steps = {name: entry["median"] for name, entry in attention["steps"].items()}
    for name, seconds in steps.items():
        plain = steps.get(f"{name.split(',')[0]}, plain formula")
        assert f"| {name} | {seconds:.3f} | {'' if plain is None else f'{plain / seconds:.2f} x '}|" in MEASURED
    off = {name: f"{error['whole']:.1e}" for name, error in attention["gradients"].items()}
    assert f"is {off['tiled, float32']} from float64" in MEASURED
    assert f"`--precision bf16-pairs` {off['tiled, bf16 in the networks of pairs']}, " in MEASURED
    assert f"`bf16` everywhere {off['tiled, bf16 everywhere']}." in MEASURED
    wide, tiled = attention["wide products"]["64 context points"], steps["TE-TNP, tiled"]
    assert f"more than {steps['TE-TNP, plain formula'] / wide:.1f} times as fast in float32" in MEASURED
    assert f"The other {tiled - wide:.2f} s are" in MEASURED
    memory = {(row["backend"], row["context"]): row["MB"] for row in attention["memory"]}
    assert f"adds {memory['tiled', 1000]} MB" in MEASURED
    for entry in json.loads((ROOT / "results/scale.json").read_text())["models"].values():
        largest = entry["sizes"][-1]
        assert largest["context"] == 100_000
        assert f"{largest['encode'] + largest['predict']:.1f} s and {largest['megabytes']:.0f} MB" in MEASURED


def test_maps_of_the_paper_s_size_are_the_measured_ones():
    found = json.loads((ROOT / "results/scale-paper.json").read_text())
    assert found["targets"] == 1_000_000
    for name, entry in found["models"].items():
        row = entry["sizes"][-1]
        cells = f"{row['encode']:.1f} s | {row['predict']:.1f} s | {row['megabytes']:,.0f} MB"
        assert f"| {name} | {cells} |" in MEASURED
        assert row["encode"] + row["predict"] < 60
        assert row["megabytes"] < 1024


def test_the_page_on_the_rotary_kernel_tells_what_was_measured():
    page = (ROOT / "docs/rotary.md").read_text()
    search = json.loads((ROOT / "results/period-search.json").read_text())
    for table in (*search["gp-1d"].values(), *search["other functions"].values()):
        cells = []
        for row in ("te-tnp-rotary", "te-tnp-rotary-control"):
            gap = table[row].get("gap")
            shown = "" if gap is None else f"{gap['mean']:.3f} ± {gap['standard error']:.3f}"
            cells += [f"{table[row]['log-likelihood']['mean']:.3f}", shown]
        gain = table["gain by the period search"]
        assert f"| {' | '.join(cells)} | {gain['mean']:+.3f} ± {gain['standard error']:.3f} |" in page
        if (exact := table.get("exact predictor of gp-1d's prior")) is not None:
            assert f" | {exact['log-likelihood']['mean']:.3f} |" in page
    for table in json.loads((ROOT / "results/period-search-prior.json").read_text())["functions"].values():
        pair = [table[row]["log-likelihood"]["mean"] for row in ("te-tnp-rotary", "te-tnp-rotary-control")]
        gain = table["gain by the period search"]
        cells = (*(f"{mean:.3f}" for mean in pair), f"{gain['mean']:+.3f} ± {gain['standard error']:.3f}")
        assert f" | {' | '.join(cells)} |\n" in page
    prose, results = (" ".join(text.split()) for text in (MEASURED, (ROOT / "docs/results.md").read_text()))
    rows = ("te-tnp-rotary", "te-tnp-rotary-control")
    ours, control = (search["gp-1d"]["all"][row]["gap"]["mean"] for row in rows)
    assert search["seeds"] == {"te-tnp-rotary": [0, 1, 2], "te-tnp-rotary-control": [0, 1]}
    assert f"is {ours:.3f} (three seeds, [docs/results.md](results.md)), and {control:.3f} without the search" in prose
    a, b, c = (search["gp-1d"][kernel][rows[0]]["gap"]["mean"] for kernel in ("se", "matern52", "periodic"))
    assert f"{a:.3f} (squared exponential), {b:.3f} (Matern 5/2) and {c:.3f} (periodic) with the search" in results
    for functions, by_inputs in json.loads((ROOT / "results/rotary-inputs.json").read_text())["scores"].items():
        for dx, models in by_inputs.items():
            cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in list(models.values())[:3]]
            gain, error = models["gain by the search"]
            assert f"| {dx} | {functions} | {' | '.join(cells)} | {gain:+.3f} ± {error:.3f} |" in page
    larger = json.loads((ROOT / "results/larger-domains.json").read_text())
    for name, scores in (*larger["scores"].items(), *larger["kept runs on functions of gp-1d"].items()):
        row = " | ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in scores.values())
        assert f"| {'knows the kernel (`GPOracle`)' if name == 'oracle' else name} | {row} |" in page
    steps = json.loads((ROOT / "results/attention.json").read_text())["steps"]
    for name in ("TE-TNP, rotary", "TE-PT-TNP-32, rotary"):
        assert f"{steps[name]['median'] / steps['TNP']['median']:.2f} times" in page


def test_the_table_of_results_is_the_measured_one(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import readme_table

    assert readme_table.fill(README) == README
    assert "<!-- results -->\n| | measured | file |" in README


def test_the_task_table_is_complete():
    page = (ROOT / "docs/reference/tasks.md").read_text()
    for name in TASKS:
        assert f"`{name}`" in page


def test_the_model_table_is_complete():
    page = (ROOT / "docs/reference/models.md").read_text()
    rows = dict(re.findall(r"^\| `([\w-]+)` \|.*\(\.\./\.\./src/shiftnp/models/(\w+\.py)\) \|$", page, re.MULTILINE))
    assert rows.keys() == MODELS.keys()
    for name, file in rows.items():
        assert MODELS[name].__module__ == f"shiftnp.models.{file.removesuffix('.py')}"


def test_the_module_map_is_complete():
    tree = README[README.index("src/shiftnp/\n") :]
    for path in (ROOT / "src/shiftnp").iterdir():
        if path.suffix == ".py" and not path.name.startswith("_"):
            assert f"  {path.name} " in tree, path.name
        if path.is_dir() and not path.name.startswith("_"):
            assert f"  {path.name}/ " in tree, path.name


def test_commands_are_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    for document in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"^make (\w+)", (ROOT / document).read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_public_names_exist():
    for name in shiftnp.__all__:
        assert getattr(shiftnp, name) is not None
    assert dir(shiftnp) == sorted(shiftnp.__all__)


def test_importing_the_package_does_not_import_torch():
    code = "import sys, shiftnp; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
