# The two commands that matter: `make lab` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PORT   ?= 8888
READY  := $(VENV)/.installed-from-lock

.DEFAULT_GOAL := help
.PHONY: help setup lab demo test conformance mutants architectures labs lint lock clean

help:            ## Say what can be made.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

setup: $(READY)  ## Make the virtual environment from requirements.lock.

$(READY): requirements.lock pyproject.toml docker/setup-venv.sh
	@sh docker/setup-venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

lab: $(READY)    ## Start JupyterLab on 127.0.0.1, and print the address of the labs.
	@$(BIN)/tilelab lab --port $(PORT)

demo: $(READY)   ## Grade right, wrong, untouched and hostile notebooks, and print the table.
	@$(BIN)/tilelab demo $(DEMO)

test: $(READY)   ## Run the tests, as many at a time as there are cores.
	@$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS)

conformance: $(READY) ## Run a kernel for every construct of the language on the simulator, and print the table.
	@$(BIN)/python -m tests.conformance

mutants: $(READY) ## Judge some 3000 wrong kernels, and print what gives each of them away.
	@PYTHONPATH=tests $(BIN)/python -m mutants

architectures: $(READY) ## Compile the solutions for every architecture that the course names (no GPU needed).
	@$(BIN)/python -m pytest tests/test_architectures.py -m "architectures or not architectures" -v
	@$(BIN)/python -m pytest tests/test_lab07.py -m architectures -v

labs: $(READY)   ## Make labs/ from solutions/.
	@$(BIN)/tilelab build

lint: $(READY)   ## Check style, the Dockerfile and that labs/ is up to date.
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/tilelab build --check

lock:            ## Write requirements.lock anew from pyproject.toml's newest versions.
	@sh docker/make-lock.sh "$(PYTHON)"

clean:           ## Delete what was built (never student work).
	rm -rf build $(VENV)
