PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m
# Byte-compiling all of PyTorch takes as long as installing it: compile what is imported, when it is.
PIP_INSTALL := $(RUN) pip install --quiet --no-compile --disable-pip-version-check --no-input --constraint constraints.txt
COMPILE := $(VENV)/bin/python -c 'import gymnasium, matplotlib.figure, ray, reef, rich.progress, tensorboard, torch'
unexport PYTHONDONTWRITEBYTECODE
RUN_ARGS ?=
TEST_ARGS ?=
LEARN_ARGS ?=
# Two processes, each with a Kubernetes of its own; but one where KUBECONFIG gives it.
TEST_CLUSTER = $(RUN) pytest -q -x --durations=20 $(if $(KUBECONFIG),,-n 2 --dist loadfile --no-loadscope-reorder) tests/cluster

# A page is tested in a real browser, where there is one or where it can be installed.
BROWSER = command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || { \
  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "==> Installing chromium-headless-shell with apt-get" \
  && apt-get -qq update \
  && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium-headless-shell >/dev/null; \
  } || echo "There is no Chromium: its tests are left out."

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help setup run test tiny lint type fmt docs schema dist locks bench bench-scale learn learn-long cluster cluster-down test-cluster pictures check clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## install Reef and all tools for working on it into .venv

run: $(VENV)/.trainer ## install Reef into .venv and train examples/cartpole-ppo.yaml
	@echo "==> Training: reef run examples/cartpole-ppo.yaml $(RUN_ARGS)"
	@$(VENV)/bin/reef run examples/cartpole-ppo.yaml $(RUN_ARGS)

test: lint type ## install Reef and the tools into .venv, then pass lint, types, all tests, and test-cluster where that can be
	@$(BROWSER)
	@echo "==> Tests"
	@$(RUN) pytest -q -x -n 3 --dist loadgroup --timeout=300 --durations=40 --ignore=tests/cluster $(TEST_ARGS)
	@$(if $(strip $(TEST_ARGS)),true,echo "==> Tests on a Kubernetes of their own, where this machine can run one (Debian, root)" && \
	  unset KUBECONFIG && $(TEST_CLUSTER))

tiny: $(VENV)/.dev ## the tests that need neither Ray nor much time
	@$(RUN) pytest -q -x -m "not ray and not slow and not learn and not cluster" $(TEST_ARGS)

lint: $(VENV)/.dev ## ruff: rules and formatting
	@echo "==> Lint"
	@$(RUN) ruff check .
	@$(RUN) ruff format --check --quiet . || { echo "Formatting differs: run 'make fmt'."; exit 1; }

type: $(VENV)/.dev ## mypy --strict on both packages
	@echo "==> Types"
	@$(RUN) mypy

fmt: $(VENV)/.dev ## format the code and fix what ruff can fix
	@$(RUN) ruff check --quiet --fix . || true
	@$(RUN) ruff format .

docs: $(VENV)/.dev ## generate docs/job-reference.md from the declarations, and docs/rllib-coverage.md from its table
	@$(RUN) reef describe --markdown > docs/job-reference.md.new && mv docs/job-reference.md.new docs/job-reference.md
	@PYTHONPATH=tests $(RUN) rllib_coverage

schema: $(VENV)/.dev ## generate the CRD and the JSON schemas from the same declarations
	@$(RUN) reef.cli.schema

dist: $(VENV)/.dev ## build the wheel and the source archive into dist/
	@$(RUN) hatchling build --directory dist

# Not PyTorch and its CUDA libraries: which build is installed, and so its hash, is the package index's choice.
NOT_LOCKED := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc \
  nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse \
  nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx
LOCK = "$$tools"/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command 'make locks' --constraint constraints.txt

locks: $(VENV)/.dev ## generate locks/*.txt from constraints.txt, with the hashes of all files on the package index
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && $(PYTHON) -m venv "$$tools" \
	  && "$$tools"/bin/pip install --quiet --disable-pip-version-check --no-input uv==0.13.9 \
	  && $(LOCK) --extra operator --output-file locks/operator.txt pyproject.toml \
	  && $(LOCK) --extra trainer --output-file locks/trainer.txt $(NOT_LOCKED:%=--no-emit-package %) pyproject.toml \
	  && $(VENV)/bin/python -c 'import tomllib; \
	    print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	    | $(LOCK) --output-file locks/build.txt -

bench: $(VENV)/.dev ## measure speed beside other libraries, into benchmarks/RESULTS.md
	@$(RUN) benchmarks.speed

bench-scale: $(VENV)/.dev ## measure the operator with 300 jobs at once on the test cluster, into the same file
	@REEF_CRD_SERVER=0 $(RUN) benchmarks.scale # one API server, as clusters have it: the second one is for the tests

learn: $(VENV)/.dev ## train every algorithm to its reward, three seeds each, into benchmarks/learn; only what changed
	@$(RUN) benchmarks.learn $(LEARN_ARGS)

learn-long: $(VENV)/.dev ## the same with what takes hours
	@$(RUN) benchmarks.learn --long $(LEARN_ARGS)

cluster: $(VENV)/.dev ## start a real Kubernetes here (Linux, root; ten minutes the first time), or take KUBECONFIG
	@PYTHONPATH=tests/cluster $(RUN) kube up

cluster-down: $(VENV)/.dev ## remove it
	@PYTHONPATH=tests/cluster $(RUN) kube down

test-cluster: $(VENV)/.dev ## the tests that need a Kubernetes: that of 'make cluster', of KUBECONFIG, or one of their own
	@REEF_REQUIRE_CLUSTER=1 $(TEST_CLUSTER) $(TEST_ARGS)

pictures: $(VENV)/.dev ## run jobs on a test cluster of its own, and draw the dashboards as docs/monitoring.md shows them
	@PYTHONPATH=tests/cluster $(RUN) pictures

check: test ## what continuous integration runs

clean: ## remove .venv and everything else that was made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# Each stamp is younger than what it was made from, so a second call does nothing.
$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "'$(PYTHON)' is not there. On Debian: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Reef needs Python 3.11 or newer, '$(PYTHON)' is older. Name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  [ $(notdir $(PYTHON)) = python3 ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "==> Installing python3-venv with apt-get" && apt-get -qq update \
	  && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends python3-venv; } || { \
	  echo "Python cannot make virtual environments here. On Debian: apt-get install python3-venv"; exit 1; }
	@echo "==> Making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.trainer: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "==> Installing Reef with PyTorch, Ray and Gymnasium into $(VENV) (a minute or two; longer where pip's PyTorch comes with CUDA)"
	@$(PIP_INSTALL) --editable '.[trainer]'
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "==> Installing Reef with PyTorch, Ray, Gymnasium and the development tools into $(VENV) (a minute or two)"
	@$(PIP_INSTALL) --editable '.[trainer,dev]'
	@$(COMPILE)
	@touch $(VENV)/.trainer $@
