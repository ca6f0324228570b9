#!/bin/sh
# Lints the Dockerfile and proves that compose accepts both combinations of files. Needs no Docker engine.
#   docker/check-compose.sh
# Takes hadolint from PATH or the virtual environment (HADOLINT names another), and compose from the machine's
# client. A machine without one, if it is a Debian or Ubuntu, gets compose from Debian's packages into a temporary
# folder; nothing is installed, and apt's own settings and lists stay as they are.
set -eu
cd "$(dirname "$0")/.."

fail() { printf '%s\n' "$@" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

find_hadolint() {
    for candidate in "${HADOLINT:-}" "$(command -v hadolint || true)" "${VENV:-.venv}/bin/hadolint"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then echo "$candidate"; return; fi
    done
    fail "hadolint was not found, so the Dockerfile can't be checked." \
         "Run 'make setup' first, or name it: HADOLINT=/path/to/hadolint docker/check-compose.sh"
}

# Compose 2.24 is the first that knows '!reset'; trixie's is newer.
fetch_compose() {
    for tool in apt-get dpkg-deb; do
        command -v "$tool" >/dev/null 2>&1 || fail \
            "This machine has no 'docker compose', and no $tool to get it with." \
            "Install Docker's compose plugin, version 2.24 or newer, and run this again."
    done
    sources=$(cat /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
    if [ -z "$sources" ]; then
        fail "This machine has no 'docker compose', and /etc/apt/sources.list.d/debian.sources," \
             "which says where Debian's packages are, is missing." \
             "Install Docker's compose plugin, version 2.24 or newer, and run this again."
    fi
    mkdir -p "$work/sources" "$work/lists/partial" "$work/cache/archives/partial" "$work/compose"
    printf '%s\n' "$sources" | sed -E '/^Suites:/ s/\b(bookworm|bullseye|stable)\b/trixie/g' \
        >"$work/sources/trixie.sources"
    # Trixie's key is not among those that an older release trusts by default, but comes with its keyring.
    apt() {
        apt-get -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/sources" \
            -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root \
            -o Acquire::Languages=none -q "$@"
    }
    { apt update -o APT::Update::Error-Mode=any && cd "$work" && apt download docker-compose; } >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "Compose could not be fetched from Debian's packages: apt's messages above say why." \
             "With a network, run this again; or install Docker's compose plugin, version 2.24 or newer."
    }
    dpkg-deb -x "$work"/docker-compose_*.deb "$work/compose"
}

if docker compose version >/dev/null 2>&1; then
    compose() { docker compose "$@"; }
else
    echo "No 'docker compose' here: fetching Debian's ..."
    (fetch_compose)
    fetched=$(find "$work/compose" -type f -name docker-compose -perm -u+x | head -n 1)
    [ -n "$fetched" ] || fail "Debian's docker-compose package has no docker-compose in it any more: adapt $0."
    compose() { "$fetched" "$@"; }
fi

hadolint=$(find_hadolint)
"$hadolint" Dockerfile
echo "Dockerfile: clean ($("$hadolint" --version))."

# .env.example, not the developer's .env: the check must not depend on who runs it.
check() {
    what=$1; shift
    compose --env-file .env.example --profile '*' "$@" config -q || fail "compose refuses $what: see above."
    compose --env-file .env.example --profile '*' "$@" config |
        awk '/^[^ ]/ { extension = /^x-/ } !extension' >"$work/config"  # only what is used
    echo "$what: accepted."
}
echo "compose: $(compose version --short)"
check docker-compose.yml -f docker-compose.yml
grep -q 'driver: nvidia' "$work/config" || fail "docker-compose.yml reserves no GPU any more."
check "docker-compose.yml with docker/compose.cpu.yml" -f docker-compose.yml -f docker/compose.cpu.yml
! grep -q 'driver: nvidia' "$work/config" || fail \
    "With docker/compose.cpu.yml a service still reserves a GPU: hosts without one can't start it."
