# Runs a pipeline with passes of 260 rows on both executors, then with passes of 128 rows on the reference.
# Usage: pieces.sh PIPELINE REQUESTS ROWS_BESIDE
set -eu
pipeline=$1 requests=$2 beside=$3
run() { # trace, rows, device
  trace=$1 rows=$2 device=$3
  [ $beside -le $rows ] || beside=$rows
  megalith run pipelines/$pipeline.yaml --requests $requests --set rows_per_pass=$rows --set prefill_chunk=$rows --set rows_beside=$beside \
    --set page_tokens=8 --set kv_pages=300 --model tiny --device=$device --trace $trace >$trace.out
}
run reference.$pipeline 260 reference
run cpu.$pipeline 260 cpu
run small.$pipeline 128 reference
cmp reference.$pipeline cpu.$pipeline
python3 "$(dirname "$0")/pieces.py" check cpu.$pipeline $3
for trace in cpu small; do
  grep -o '"id":"[^"]*","tokens":\[[^]]*\]' $trace.$pipeline.out | sort >$trace.tokens
done
cmp cpu.tokens small.tokens
