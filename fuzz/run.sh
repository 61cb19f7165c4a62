#!/bin/bash
# Runs every fuzz target on random inputs, at least INPUTS of each, and says how many there were and how long it took.
# ONLY=pattern runs some. What failed is told with the seed that repeats it; the others go on.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

inputs=${INPUTS:-10000000}
cargo=${CARGO:-cargo}
failed=0

# test PACKAGE WHERE [ARGUMENTS]: cargo test of the tests that are there.
run_tests() {
  local package=$1 where=$2
  shift 2
  case $where in
    lib) where=(--lib) ;;
    bin) where=(--bins) ;;
    *) where=(--test "$where") ;;
  esac
  "$cargo" test --quiet --locked --profile fuzz -p "$package" "${where[@]}" -- "$@"
}

# fuzz PACKAGE WHERE TEST SCRIPT: one target.
fuzz() {
  local package=$1 where=$2 test=$3 script=${4:-1} name output status count before after
  name=$package/$test
  [[ $name =~ ${ONLY:-} ]] || return
  before=${EPOCHREALTIME/[.,]/}
  output=$(BOLERO_RANDOM_ITERATIONS=$(((inputs + script - 1) / script)) \
    run_tests "$package" "$where" --exact "$test" --nocapture 2>&1)
  status=$?
  after=${EPOCHREALTIME/[.,]/}
  # What the target itself counts, else what bolero drew.
  count=$(sed -n 's/^inputs: //p' <<<"$output" | tail -1)
  count=${count:-$(sed -n 's/.* rng inputs: \([0-9]*\).*/\1/p' <<<"$output" | tail -1)}
  count=${count:-0}
  if ((status != 0)); then
    printf '%-70s failed\n%s\n' "$name" "$output"
    failed=1
  elif ! grep -q '^test result: ok. 1 passed' <<<"$output"; then
    printf '%-70s there is no such test\n' "$name"
    failed=1
  elif ((count < inputs)); then
    printf '%-70s only %d inputs\n' "$name" "$count"
    failed=1
  else
    printf '%-70s %11d inputs %6d s, none failed\n' "$name" "$count" \
      $(((after - before) / 1000000))
  fi
}

# Builds first, so that the times are those of the targets.
packages=$(sed '/^#/d; s/ .*//' fuzz/targets | sort -u | sed 's/^/-p /')
# shellcheck disable=SC2086
"$cargo" test --quiet --locked --profile fuzz --no-run --lib --bins --tests $packages || exit

# All of this crate, but those that the list has with a number.
while read -r test; do
  grep -q "^weir-fuzz lib $test " fuzz/targets || fuzz weir-fuzz lib "$test"
done < <(run_tests weir-fuzz lib --list 2>/dev/null | sed -n 's/: test$//p')
while read -r package where test script; do
  fuzz "$package" "$where" "$test" "$script"
done < <(sed '/^#/d' fuzz/targets)
exit $failed
