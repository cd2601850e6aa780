#!/bin/sh
# What is still to be run on an H200, cut into calls of at most ten minutes each. Every call resumes.
#
#     DATA=FOLDER tools/on_gpu.sh 1          then 2 and 3; 4 to 8 if there is time left
#
#   1   benchmark `large`: theirs (7 min) and ours, first process (2 min); `fast` on the same images (1 min)
#   2   benchmark `layer`: theirs (5 min) and ours twice (4 min)
#   3   `fast` on all networks and behind the layer (5 min), the missing cells of docs/gate.md (4 min)
#   4   benchmark `large`, ours, second process (2 min); races autoattack-wrn16-4-trades, bare and with the layer (8 min)
#   5   all 10,000 images: `fast` on two compact networks (1 min); table 3, the bare networks (9 min)
#   6   table 3 on all 10,000 images, with the layer, as far as it comes (10 min; call it again until it says complete)
#   7   table 1 on all 500 ImageNet-like images (10 min; call it again until it says complete)
#   8   the league: every defence and attack on three networks and 500 images, by six processes (10 min; call it again
#       until it says complete). Further words go to tools.run_league. To try it, on a CPU:
#       DEVICE=cpu DATA=FOLDER tools/on_gpu.sh 8 --store /tmp/league --samples 2 --queries 5 --clean 20 --network compact
#
# The minutes are guesses from runs on 512 and 1,000 images. DATA holds the imported data sets: CIFAR-10 in full, CIFAR-100,
# and for 7 the images and ResNet-50 (`antiadv data import`). For 1, 2 and 4 pyautoattack must be importable. PYTHON is
# the interpreter.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 2
}
: "${DATA:?the folder of imported data sets}" "${PYTHON:=python3}" "${DEVICE:=cuda}"
DATA=$(cd "$DATA" && pwd) # absolute, because runs are processes of their own
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
full="cifar10:test,dir=$DATA"

defaults() { "$PYTHON" -W ignore -m benchmarks.defaults --device "$DEVICE" "$@"; }
fast() { "$PYTHON" -m tools.run_fast --device "$DEVICE" --precision half --data "$DATA" "$@"; }
speed() { "$PYTHON" -W ignore -m benchmarks.speed --device "$DEVICE" --precision tf32 --sides half --repeats 1 "$@"; }
paper() { "$PYTHON" -m tools.run_paper --device "$DEVICE" --precision half --data "$DATA" --minutes 9.5 "$@"; }
league() { "$PYTHON" -m tools.run_league --device "$DEVICE" --data "$DATA" --minutes 9.5 --processes 6 "$@"; }

case "$1" in
1)
    defaults --jobs large --data "$full" --runs theirs,first
    defaults --jobs fast --data "$full" --runs theirs,first,second
    ;;
2) defaults --jobs layer ;;
3)
    fast --minutes 5 --only 'fast on'
    "$PYTHON" -m tools.run_gate --device "$DEVICE" --data "$DATA" --minutes 4
    ;;
4)
    defaults --jobs large --data "$full" --runs second
    speed --jobs autoattack-wrn16-4-trades,autoattack-layer-wrn16-4-trades --within 460
    ;;
5)
    for method in trades awp; do
        fast --samples 10000 --minutes 1 --only "fast on compact:$method, defence none"
    done
    paper --minutes 8 --experiments table-3 --samples 10000 --only compact --without anti_adversary
    ;;
6) paper --experiments table-3 --samples 10000 --only compact --only anti_adversary ;;
7) paper --experiments table-1 --only imagenet ;;
8)
    shift
    league "$@" --minutes 0 # first the clean traffic, alone: it is timed
    for _ in 1 2 3 4 5 6; do league --clean 0 "$@" & done
    wait
    ;;
*) echo "there is no call $1; known are 1 to 8." >&2 && exit 2 ;;
esac
