# Every target installs what it needs on a machine that has only Python and pip.
PYTHON ?= python3
UV ?= $(shell command -v uv || ls .uv/bin/uv 2>/dev/null || echo $(PYTHON) -m uv)
RUN = $(UV) run --frozen --no-sync

.PHONY: demo studio setup sync check lint types test test-vllm quick machines attack bench embedded example seeds pictures notebook site site-serve pin clean

demo: setup  ## PPO on the embedded tiny model, in about two minutes; FLAGS="--seed 1 --steps 20 --reward gold --json"
	@$(RUN) python main.py $(FLAGS)

studio: setup  ## the studio over an example run that comes with ppolm; FLAGS="--port 8800"
	@$(RUN) ppolm studio --example $(FLAGS)

setup: .venv/.ready

.venv/.ready: pyproject.toml
	@$(UV) --version >/dev/null 2>&1 || $(PYTHON) -m pip install --quiet uv 2>/dev/null \
		|| { $(PYTHON) -m venv .uv && .uv/bin/pip install --quiet uv; }
	@$(MAKE) --no-print-directory sync
	@touch $@

sync:
	$(UV) sync

check: lint types test  ## everything that must be green before a commit

lint: setup
	$(RUN) ruff check .
	$(RUN) ruff format --check .

types: setup
	$(RUN) mypy

test: setup
	$(RUN) pytest -n auto --dist loadgroup

quick: setup  ## a minute's worth of the tests, from every room
	$(RUN) pytest -n auto --dist loadgroup -m "not slow"

test-vllm: setup  ## the engine vllm against real vLLM servers on this CPU; installs them into .vllm, some gigabytes
	$(RUN) python -m scripts.vllm_tests $(FLAGS)

machines: setup  ## the tests as other machines would run them: other instructions and threads, a busy neighbour
	$(RUN) python -m scripts.other_machines

attack: setup  ## what a user can do to it; PARTS="bad-inputs" for one of them, FLAGS="--count 1000 --seed 1"
	$(RUN) python -m attack $(PARTS) $(FLAGS)

bench: setup  ## the table's stages on a million rows, then PPO steps beside TRL's; FLAGS=--quick for two small cases
	$(RUN) python bench/table_stages.py
	UV="$(UV)" $(RUN) python -m bench.compare $(FLAGS)

embedded: setup  ## build the embedded model and its reward model again
	$(RUN) python -m scripts.build_embedded

example: setup  ## rebuild the example run that `make studio` shows
	$(RUN) python -m scripts.build_example_run

seeds: setup  ## the demo with five seeds, written into docs/
	$(RUN) python -m scripts.demo_seeds

pictures: setup  ## the pictures of docs/architecture.md, from the source
	$(RUN) python -m scripts.pipeline_picture
	$(RUN) python -m scripts.architecture_picture

notebook: setup  ## run examples/first-steps.ipynb and store what its cells print
	$(RUN) python -m scripts.notebook

site: setup  ## the documents as a site, in build/site (Python 3.11 or newer); open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --quiet && echo "open build/site/index.html"

site-serve: setup  ## the site, built again while you write
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs serve

pin: setup  ## re-pin every dependency in pyproject.toml
	$(RUN) python scripts/pin.py

clean:
	rm -rf .venv uv.lock dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
