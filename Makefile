.DEFAULT_GOAL := help
.PHONY: help setup run test

help: ## this list
	@echo "specgauge: forecast speculative decoding on this machine, then check the forecast by a run"
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

setup: ## create .venv and install specgauge with its demo (make run and make test do it themselves)
	@tools/setup.sh

run: setup ## specgauge run on the embedded demo; ARGS="MODEL.gguf --draft DRAFT.gguf" for your own models
	@echo "run: .venv/bin/specgauge run $(ARGS)"
	@.venv/bin/specgauge run $(ARGS)

test: ## ruff, import floors, pyright and pytest; ARGS go to pytest
	@tools/test.sh $(ARGS)
