# Runs a pipeline with passes of 260 rows on both executors, then with passes of 128 rows on the reference.
# Usage: pieces.sh MODEL PIPELINE REQUESTS ROWS_BESIDE [OPTION...]
set -eu
model=$1 pipeline=$2 requests=$3 beside=$4
shift 4
tails= # prompts are fed before their last tokens; last-row.test has them together
test $pipeline != sampled || tails="--set tail=1 --set tail_alone=1"
run() { # trace, rows, device, options
  trace=$1 rows=$2 device=$3
  shift 3
  megalith run pipelines/$pipeline.yaml --requests $requests --set rows_per_pass=$rows --set prefill_chunk=$rows --set rows_beside=$((beside < rows ? beside : rows)) \
    --set page_tokens=8 --set kv_pages=300 --model $model --device=$device --trace $trace $tails "$@" >$trace.out
}
run reference.$pipeline 260 reference
run cpu.$pipeline 260 cpu "$@"
run small.$pipeline 128 reference
cmp reference.$pipeline cpu.$pipeline
python3 "$(dirname "$0")/pieces.py" check cpu.$pipeline $beside
for trace in cpu small; do
  grep -o '"id":"[^"]*","tokens":\[[^]]*\]' $trace.$pipeline.out | sort >$trace.tokens
done
cmp cpu.tokens small.tokens
