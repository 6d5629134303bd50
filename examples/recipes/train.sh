#!/usr/bin/env bash
# One training on several hosts, by torchrun. Start it on every host, in any order, with
#
#   NODES=2 NODE_RANK=0 FIRST_HOST=host-a bash examples/recipes/train.sh      on host-a
#   NODES=2 NODE_RANK=1 FIRST_HOST=host-a bash examples/recipes/train.sh      on host-b
#
# The Slurm, SkyPilot and Kubernetes recipes beside this file set these variables and start it, too. Started again after a
# fault, it resumes from the last checkpoint. RUN must be on a disk that all hosts see; hosts reach FIRST_HOST at PORT.
set -euo pipefail

: "${NODES:?how many hosts there are}" "${NODE_RANK:?the number of this host, from 0}"
: "${FIRST_HOST:?name or address of host 0}"
PORT=${PORT:-29400}
DEVICES=${DEVICES:-8} # processes on each host: one per GPU
RUN=${RUN:-/shared/runs/first}
MODEL=${MODEL:-Qwen/Qwen3-0.6B-Base}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if compgen -G "$RUN/checkpoints/*" >/dev/null; then
    settings=(--resume "$RUN")
else # further flags, such as --max-steps 100, are handed on
    settings=(--config configs/own-reward.yaml --model-name "$MODEL")
    settings+=(--output-dir "$(dirname "$RUN")" --run-name "$(basename "$RUN")")
fi
exec torchrun --nnodes "$NODES" --node-rank "$NODE_RANK" --nproc-per-node "$DEVICES" \
    --master-addr "$FIRST_HOST" --master-port "$PORT" -m ppolm train "${settings[@]}" "$@"
