#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh: runs fuzz targets, and keeps their corpora small. README.md beside it says more.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# An input that takes longer, or more memory, than this is a finding.
limits=(-timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=1024)
# Inputs of a corpus are shorter than this.
longest=16384

usage() {
    cat <<'USAGE'
Usage: fuzz.sh run PROGRAM               fuzzes for $EMBTIER_FUZZ_SECONDS (20), from the corpus in the tree
       fuzz.sh afl PROGRAM               the same by AFL++, of a build by afl-clang-fast
       fuzz.sh merge FOLDER PROGRAM...   adds inputs of FOLDER/TARGET/ that reach more code to the corpus, the shortest ones
       fuzz.sh seeds PROGRAM FOLDER      writes the seeds (PROGRAM is fuzz_seeds)
PROGRAM is a target of a build with -Dfuzz=enabled. An input that crashes goes to $EMBTIER_FUZZ_FINDINGS, else to findings/
beside the program. New inputs stay in $EMBTIER_FUZZ_FOUND/TARGET/; without that they are removed.
USAGE
}

# arguments_of TARGET: options that follow from its files.
arguments_of() {
    local dictionary=$here/dictionaries/$1.dict
    [[ ! -f $dictionary ]] || printf '%s\n' "-dict=$dictionary"
    # Their threads allocate at any time, so libFuzzer would look for leaks after each input. The sanitizer looks when the program ends.
    [[ $1 != fuzz_submission && $1 != fuzz_control ]] || printf '%s\n' -detect_leaks=0
}

# run PROGRAM
run() {
    local program=$1 target=${1##*/} folder found findings arguments
    findings=${EMBTIER_FUZZ_FINDINGS:-${program%/*}/findings}
    folder=$(mktemp -d "${TMPDIR:-/tmp}/$target.XXXXXX")
    # shellcheck disable=SC2064 # now
    trap "rm -rf '$folder'" EXIT
    found=${EMBTIER_FUZZ_FOUND:-$folder}/$target
    mkdir -p "$found" "$findings"
    mapfile -t arguments < <(arguments_of "$target")
    if ! TMPDIR=$folder "$program" -max_total_time="${EMBTIER_FUZZ_SECONDS:-20}" "${limits[@]}" -max_len="$longest" "${arguments[@]}" \
        -artifact_prefix="$findings/$target-" -print_final_stats=1 "$found" "$here/corpus/$target"; then
        printf '%s found something. It happens again with:\n' "$target"
        find "$findings" -name "$target-*" -newer "$folder" -printf "    $program %p\n"
        return 1
    fi
}

# afl PROGRAM: AFL++ sets options of the sanitizers itself, and refuses others.
afl() {
    local program=$1 target=${1##*/} folder findings dictionary arguments=() input count=0
    findings=${EMBTIER_FUZZ_FINDINGS:-${program%/*}/findings}
    dictionary=$here/dictionaries/$target.dict
    folder=$(mktemp -d "${TMPDIR:-/tmp}/$target.XXXXXX")
    # shellcheck disable=SC2064 # now
    trap "rm -rf '$folder'" EXIT
    mkdir -p "$findings" "$folder/files"
    [[ ! -f $dictionary ]] || arguments=(-x "$dictionary")
    # It shares the processors with others, and needs no core files.
    env -u ASAN_OPTIONS -u UBSAN_OPTIONS -u LSAN_OPTIONS AFL_NO_UI=1 AFL_NO_AFFINITY=1 AFL_SKIP_CPUFREQ=1 \
        AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 TMPDIR="$folder/files" \
        afl-fuzz -i "$here/corpus/$target" -o "$folder/out" -V "${EMBTIER_FUZZ_SECONDS:-20}" -t 20000 -m none -G "$longest" \
        "${arguments[@]}" -- "$program"
    grep -E '^(execs_done|execs_per_sec|corpus_found|saved_crashes|saved_hangs) ' "$folder/out/default/fuzzer_stats"
    if [[ -n ${EMBTIER_FUZZ_FOUND:-} ]]; then
        mkdir -p "$EMBTIER_FUZZ_FOUND/$target"
        find "$folder/out/default/queue" -type f -name 'id:*' ! -name '*,orig:*' -exec cp {} "$EMBTIER_FUZZ_FOUND/$target" \;
    fi
    for input in "$folder"/out/default/{crashes,hangs}/id:*; do
        [[ -f $input ]] || continue
        [[ $((count++)) != 0 ]] || printf '%s found something. It happens again with:\n' "$target"
        cp "$input" "$findings/$target-afl-$(sha1sum <"$input" | cut -c 1-40)"
        printf '    %s %s\n' "$program" "$findings/$target-afl-$(sha1sum <"$input" | cut -c 1-40)"
    done
    [[ $count == 0 ]]
}

# merge_one FOUND PROGRAM: libFuzzer leaves out inputs that reach nothing new. Seeds and regressions, which have names, stay.
merge_one() {
    local found=$1 program=$2 target=${2##*/} folder corpus arguments
    corpus=$here/corpus/$target
    mapfile -t arguments < <(arguments_of "$target")
    folder=$(mktemp -d "${TMPDIR:-/tmp}/$target.XXXXXX")
    mkdir -p "$folder/merged" "$folder/named" "$corpus"
    find "$corpus" -name '*-*' -exec cp {} "$folder/named" \;
    cp "$folder"/named/* "$folder/merged" 2>/dev/null || true
    # Counts of how often a place is reached would triple the corpus.
    TMPDIR=$folder "$program" "${limits[@]}" -max_len="$longest" "${arguments[@]}" -use_counters=0 -merge=1 "$folder/merged" "$found" "$corpus" 2>&1 | tail -n 1
    rm -rf "$corpus"
    mv "$folder/merged" "$corpus"
    rm -rf "$folder"
}

[[ $# -ge 2 ]] || { usage >&2 && exit 2; }
case $1 in
run) run "$2" ;;
afl) afl "$2" ;;
merge) for program in "${@:3}"; do merge_one "$2/${program##*/}" "$program"; done ;;
seeds) "$2" "$3" ;;
*) usage >&2 && exit 2 ;;
esac
