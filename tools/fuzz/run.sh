#!/bin/bash
# Runs every fuzz target on random inputs, at least INPUTS of each, and says how many there were and how long it took.
# ONLY=pattern runs some. What failed is told with the seed that repeats it; the others go on.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

inputs=${INPUTS:-10000000}
only=${ONLY:-.}
failed=0

# One build for all: each set of packages has dependencies of its own.
list=$(sed '/^#/d' tools/fuzz/targets)
arguments=(--lib --bins)
for package in $(cut -d' ' -f1 <<<"$list" | sort -u); do
  arguments+=(-p "$package")
done
for test in $(cut -d' ' -f2 <<<"$list" | sort -u); do
  [[ $test == lib || $test == bin ]] || arguments+=(--test "$test")
done
built=$("${CARGO:-cargo}" test --locked --profile fuzz --no-run "${arguments[@]}" 2>&1) || {
  echo "$built"
  exit 1
}

# executable PACKAGE WHERE: the program with these tests. A package may have a library and a program of one name.
executable() {
  local name=$2 source=tests/.*
  case $2 in
    lib) name=${1//-/_} source=src/lib.rs ;;
    bin) name=${1//-/_} source=src/.*main.rs ;;
  esac
  sed -n "s|.* Executable .*$source (\(.*/$name-[0-9a-f]*\))|\1|p" <<<"$built"
}

# fuzz PACKAGE WHERE TEST SCRIPT: one target.
fuzz() {
  local name=$1/$3 program output status count before seconds
  [[ $name =~ $only ]] || return
  program=$(executable "$1" "$2")
  before=$EPOCHSECONDS
  output=$(BOLERO_RANDOM_ITERATIONS=$(((inputs + $4 - 1) / $4)) \
    "$program" --exact "$3" --nocapture 2>&1 </dev/null)
  status=$?
  seconds=$((EPOCHSECONDS - before))
  # What the target itself counts, else what bolero drew.
  count=$(sed -n 's/^inputs: //p' <<<"$output" | tail -1)
  count=${count:-$(sed -n 's/.* rng inputs: \([0-9]*\).*/\1/p' <<<"$output" | tail -1)}
  if ((status != 0)); then
    printf '%-75s failed\n%s\n' "$name" "$output"
  elif ((${count:-0} < inputs)); then
    printf '%-75s only %d inputs\n' "$name" "${count:-0}"
  else
    printf '%-75s %10d inputs %6d s, none failed\n' "$name" "$count" "$seconds"
    return
  fi
  failed=1
}

# All of this crate, but those that the list has with a number.
for test in $("$(executable weir-fuzz lib)" --list 2>/dev/null | sed -n 's/: test$//p'); do
  grep -q "^weir-fuzz lib $test " <<<"$list" || fuzz weir-fuzz lib "$test" 1
done
while read -r package where test script; do
  fuzz "$package" "$where" "$test" "${script:-1}"
done <<<"$list"
exit $failed
