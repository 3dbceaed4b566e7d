"""What commands do to the network and the disk, seen from outside: under strace, not by a hook.

    python tools/outside.py                    every command at a small size, as a Markdown table
    python tools/outside.py --only encode,serve
    python tools/outside.py --search           which packages here speak of telemetry at all
    python tools/outside.py --checks           the table of docs/dependencies.md, from the code's

A hook inside Python does not see the sockets of native code, and it was native code that looked up
its maker's host. So the kernel's calls are read: sockets by family and address, and every file that
is made, written or renamed. Each command has its own home, cache, state and temporary folder; what
it writes anywhere else is listed, and what is left in the temporary folder when it has ended.
Python's own bytecode files are switched off, for they say nothing. Needs strace (Linux).
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAIN = "from capelet.cli import main; main()"
# What may reach another machine, or leave something behind. Reads are nobody's business here.
SOCKET_CALLS = ("socket", "connect", "bind", "sendto", "sendmsg", "sendmmsg")
FILE_CALLS = (
    "open", "openat", "openat2", "creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2",
    "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat",
)  # fmt: skip
CALLS = (*SOCKET_CALLS, *FILE_CALLS, "io_uring_setup", "chdir")
_LINE = re.compile(r"(?P<call>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")
_FAMILY = re.compile(r"(?:sa_family=)?(AF_\w+)")
_ADDRESS = re.compile(r'sa_family=(AF_INET6?), .*?htons\((\d+)\).*?"([^"]+)"')
_WHERE = re.compile(r" (\S+):\d+$")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FOLDER = re.compile(r"(?:AT_FDCWD|\d+)<([^>]*)>")
# Pipes between processes of one machine, and the kernel's own news of its interfaces.
LOCAL_FAMILIES = ("AF_UNIX", "AF_NETLINK", "AF_UNSPEC")
# Devices, and a process's view of itself: nothing stays there.
_DEVICES = ("/dev/null", "/dev/tty", "/dev/pts/", "/dev/urandom", "/proc/", "/sys/")
_SHARED_MEMORY = Path("/dev/shm")


def why_not() -> str | None:
    """Why nothing can be observed here; None where it can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed, so nothing can be seen from outside"
    done = subprocess.run([strace, "-f", "-o", os.devnull, "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else "strace may not follow processes here (ptrace)"


@dataclass(frozen=True)
class Places:
    """The folders of one observed run; home is there to see that nothing is written to it."""

    root: Path

    def make(self) -> dict[str, str]:
        """Make the folders; the environment that names them, and nothing else of ours."""
        for name in ("home", "work", "cache", "state", "tmp", "trace"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        # Bare: some packages are silent where a variable says that a build server runs them.
        names = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "CAPELET_DATA")
        own = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **own,
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "CAPELET_CACHE": str(self.root / "cache"),
            "CAPELET_STATE": str(self.root / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @property
    def ours(self) -> tuple[Path, ...]:
        names = ("work", "cache", "state", "tmp")
        return tuple((self.root / name).resolve() for name in names)


@dataclass(frozen=True)
class Observation:
    """What a command did: sockets that can reach further, files elsewhere, what it left."""

    sockets: tuple[str, ...]
    files: tuple[str, ...]
    left: tuple[str, ...]
    code: int = 0
    errors: str = ""

    @property
    def is_silent(self) -> bool:
        return not (self.sockets or self.files or self.left)


def traced(trace: Path) -> list[str]:
    """The command line before a command that is to be observed."""
    # One file for each thread, so that no call is cut in two by another; only the calls of the
    # list stop a thread (seccomp), so that it is nearly as fast as unobserved.
    options = ["-ff", "--seccomp-bpf", "-qq", "-y", "-e", "signal=none"]
    options += ["-e", "trace=" + ",".join(CALLS)]
    # What goes through a ring is not seen. Told that this kernel has none, a program calls openly.
    options += ["-e", "inject=io_uring_setup:error=ENOSYS"]
    return ["strace", *options, "-o", str(trace / "thread")]


def watch(
    command: list[str],
    places: Places,
    more: dict[str, str] | None = None,
    also: tuple[Path, ...] = (),
    during: Callable[[subprocess.Popen[str]], None] | None = None,
    seconds: float = 600.0,
) -> Observation:
    """Run a command under strace; `during` may talk to it meanwhile, and then ends it."""
    environment = {**places.make(), **(more or {})}
    trace = Path(tempfile.mkdtemp(dir=places.root / "trace"))
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*traced(trace), *command], cwd=places.root / "work", env=environment,
        stdout=pipe, stderr=pipe, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        if during is not None:
            during(process)
        _, errors = process.communicate(timeout=seconds)
    finally:
        # strace and what it follows: alone, a process whose observer is gone would run on.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    folders = (*places.ours, *(path.resolve() for path in also))
    sockets, files = read_traces(trace, places.root / "work", folders)
    tmp = places.root / "tmp"
    left = [path.relative_to(tmp).as_posix() for path in sorted(tmp.rglob("*"))]
    # Shared memory is a temporary folder, too, and other programs of this machine use it.
    shared = [name for name in files if Path(name).is_relative_to(_SHARED_MEMORY)]
    left += [name for name in shared if Path(name).exists()]
    files = tuple(name for name in files if name not in shared)
    return Observation(sockets, files, tuple(left), process.returncode, errors)


# ---- reading -------------------------------------------------------------------------------------


def read_traces(
    trace: Path, start: Path, ours: tuple[Path, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sockets that are not of this machine's own kind, and files outside the folders."""
    sockets: Counter[str] = Counter()
    files: set[str] = set()
    for path in trace.glob("thread.*"):
        for call, arguments in _calls(path, start):
            if call in SOCKET_CALLS:
                name = socket_of(call, arguments)
                sockets.update([name] if name else [])
            else:
                files.update(str(item) for item in written(call, arguments) if _foreign(item, ours))
    return tuple(sorted(sockets)), tuple(sorted(files))


def _calls(path: Path, start: Path) -> Iterator[tuple[str, str]]:
    """The calls of one thread that did not fail; a connection that is on its way counts."""
    folder = str(start)
    for line in path.read_text("utf-8", "replace").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        call, arguments = match["call"], match["arguments"]
        if int(match["result"]) < 0 and call not in ("connect", "sendto", "sendmsg", "sendmmsg"):
            continue
        if call == "chdir":
            folder = str(Path(folder, arguments.strip('"')))
        else:
            # Calls that take no folder mean the thread's own; strace names that of the others.
            has_folder = call.endswith(("at", "at2")) or call not in FILE_CALLS
            yield call, arguments if has_folder else f"0<{folder}>, {arguments}"


def socket_of(call: str, arguments: str) -> str | None:
    """A socket in words; None where it stays on this machine by its kind.

    >>> socket_of("socket", "AF_UNIX, SOCK_STREAM, 0")
    >>> socket_of("socket", "AF_INET, SOCK_DGRAM, IPPROTO_IP")
    'AF_INET socket'
    >>> address = '{sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.1")}'
    >>> socket_of("connect", f"7<UDP>, {address}, 16")
    'AF_INET connect 192.0.2.1:53'
    """
    family = _FAMILY.search(arguments)
    if family is None or family[1] in LOCAL_FAMILIES:
        return None
    address = _ADDRESS.search(arguments)
    if address is not None:
        return f"{family[1]} {call} {address[3]}:{address[2]}"
    return f"{family[1]} {call}"


def written(call: str, arguments: str) -> Iterator[Path]:
    """The paths that a call makes or opens for writing.

    >>> list(written("openat", 'AT_FDCWD</a>, "b", O_WRONLY|O_CREAT, 0666'))
    [PosixPath('/a/b')]
    >>> list(written("openat", 'AT_FDCWD</a>, "b", O_RDONLY'))
    []
    """
    if call.startswith("open") and not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", arguments):
        return
    # Of two names the second is the one that is new; the folder stands before the name.
    folders, names = _FOLDER.findall(arguments), _TEXT.findall(arguments)
    if names:
        name = (
            names[-1].encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")
        )
        yield Path(os.path.normpath(Path(folders[-1] if folders else "/", name)))


def _foreign(path: Path, ours: tuple[Path, ...]) -> bool:
    if str(path).startswith(_DEVICES):
        return False
    # A link may lead out of a folder of ours, or into one.
    return not any(item.is_relative_to(root) for root in ours for item in (path, path.resolve()))


# ---- every command -------------------------------------------------------------------------------

RECIPE = """[[steps]]
step = "encoder"
name = "{encoder}"

[[steps]]
step = "laplace"
epsilon = 8.0
"""
PLAN = """name = "tiny"
paper = "bench"
title = "A tiny study"
headline = "Does it run?"
kind = "protect"

[settings]
encoder = "wordllama"
attackers = ["logistic"]
epochs = 1

[axes]
corpus = ["tiny"]
seed = [0, 1]
method = ["leace"]

[sizes.small]
[sizes.full]

[[tables]]
title = "Attacker of gender"
down = "method"
across = "corpus"
where = { kind = "attribute-inference", metric = "balanced_accuracy", target = "gender" }

[corpora.tiny]
file = "texts.csv"
text = "body"
label = "stars"
private = ["gender"]
"""
COLUMNS = ["--text", "body", "--label", "stars", "--private", "gender", "--author", "writer"]
TEXTS = ["--text", "body", "--author", "writer"]
FAST = ["--attackers", "logistic", "--seeds", "1,"]
LEDGER = ["--subject", "writer", "--ledger", "people.db", "--budget", "4000"]
SMALL_MODEL = ["--width", "16", "--layers", "1", "--epochs", "1", "--vocabulary", "200"]
# In this order in one folder, for some work on what others wrote. By name: the command's own where
# it is run once; more words say what is special about it.
SCENARIOS: dict[str, list[str]] = {
    "list": ["list"],
    "check": ["check", "texts.csv", *COLUMNS],
    "audit": ["audit", "texts.csv", *COLUMNS, *FAST, "--out", "audit"],
    "audit, all attacks, torch": [
        "audit", "texts.csv", *COLUMNS, *FAST, "--attacks", "all", "--member", "trained",
        "--backend", "torch", "--out", "audit-all",
    ],
    "report": ["report", "audit", "audit-all", "--out", "compared"],
    "protect": [
        "protect", "texts.csv", *COLUMNS, *FAST, "--method", "bottleneck", "--epsilon", "8",
        "--epochs", "2", "--out", "private",
    ],
    "protect, search for settings": [
        "protect", "texts.csv", *COLUMNS, *FAST, "--method", "gr", "--max-leakage", "0.3",
        "--trials", "2", "--epochs", "1", "--encoder", "wordllama", "--out", "found",
    ],
    "encode": ["encode", "texts.csv", "out.parquet", "--text", "body", "--recipe", "minilm.toml",
               *LEDGER],
    "encode, on Ray": [
        "encode", "many", "out", "--text", "body", "--recipe", "words.toml", "--engine", "ray",
        "--workers", "1",
    ],
    "verify": ["verify", "--recipe", "words.toml", "--samples", "2000"],
    "verify, the pipeline": ["verify", "--recipe", "words.toml", "--pipeline"],
    "serve": ["serve", "--recipe", "minilm.toml", "--ledger", "served.db", "--budget", "40",
              "--port", "0"],
    "invert": [
        "invert", "texts.csv", *TEXTS, "--encoder", "wordllama", "--attacks", "multi-label",
        "--out", "words",
    ],
    "membership": [
        "membership", "texts.csv", "--text", "body", "--member", "trained", "--encoder",
        "wordllama", "--out", "members",
    ],
    "dual train": ["dual", "train", "texts.csv", *TEXTS, *SMALL_MODEL, "--dimension", "16",
                   "--out", "dual"],
    "dual utility": ["dual", "utility", "dual", "--tasks", "trec"],
    "lm train": ["lm", "train", "texts.csv", *TEXTS, *SMALL_MODEL, "--device", "cpu",
                 "--canaries", "1,5", "--canary-authors", "4", "--out", "model"],
    "lm attack": ["lm", "attack", "model", "--data", "texts.csv", *TEXTS, "--samples", "2000",
                  "--out", "attacked"],
    "lm compare": ["lm", "compare", "attacked", "attacked-too", "--out", "lm-compared"],
    "study run": ["study", "run", "plan.toml", "--workers", "2", "--out", "study"],
    "study run, on Ray": ["study", "run", "plan.toml", "--engine", "ray", "--workers", "1",
                          "--out", "study-ray"],
    "study status": ["study", "status", "study"],
    "study check": ["study", "check", "plan.toml", "--workers", "1", "--out", "checked"],
    "study results": ["study", "results", "plan.toml", "--out", "study", "--to", "results"],
    "budgets show": ["budgets", "show", "people.db"],
    "budgets raise": ["budgets", "raise", "people.db", "--to", "8000"],
    "budgets erase": ["budgets", "erase", "people.db", "--person", "w001"],
    "budgets backup": ["budgets", "backup", "people.db", "copy.db"],
    "budgets restore": ["budgets", "restore", "copy.db", "again.db"],
    "budgets rotate": ["budgets", "rotate", "again.db", "--to", "outer.key"],
    "keys add": ["keys", "add", "--ledger", "served.db", "--label", "one"],
    "keys list": ["keys", "list", "--ledger", "served.db"],
    "keys revoke": ["keys", "revoke", "KEY", "--ledger", "served.db"],
    "cache where": ["cache", "where"],
    "cache clear": ["cache", "clear"],
}  # fmt: skip


def write_inputs(folder: Path, rows: int = 400) -> None:
    """A slice of the embedded sample as a table, as a folder of tables, and what commands read."""
    import csv

    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    import capelet

    corpus = capelet.load("reviews")
    assert corpus.texts is not None and corpus.author is not None and corpus.label is not None
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["body", "stars", "gender", "writer", "trained"])
        for row in range(rows):
            about = (corpus.label[row], corpus.private["gender"][row], corpus.author[row])
            table.writerow([corpus.texts[row], *about, "yes" if row % 2 else "no"])
    (folder / "minilm.toml").write_text(RECIPE.format(encoder="minilm"), encoding="utf-8")
    (folder / "words.toml").write_text(RECIPE.format(encoder="wordllama"), encoding="utf-8")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    (folder / "many").mkdir()
    whole = arrow_csv.read_csv(folder / "texts.csv")
    for part in range(2):
        parquet.write_table(whole.slice(part * 40, 40), folder / "many" / f"{part}.parquet")


def ask_once(process: subprocess.Popen[str]) -> None:
    """One request to a gateway that begins to listen, and the signal that ends it."""
    assert process.stdout is not None
    line = process.stdout.readline()
    url = line.split(" at ")[1].split(": ")[0]
    body = json.dumps({"model": "minilm", "input": "a text", "user": "ann"}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/embeddings", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 200
    # Of strace's own children: a signal to strace itself would only end the observation.
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)


def run_all(root: Path, names: list[str]) -> Iterator[tuple[str, Observation]]:
    """Each scenario with what was seen of it; temporary folder and home are empty before each."""
    places = Places(root)
    places.make()
    work = root / "work"
    write_inputs(work)
    for name in names:
        for inner in ("tmp", "home"):
            shutil.rmtree(root / inner)
        words = list(SCENARIOS[name])
        if "KEY" in words:
            words[words.index("KEY")] = _first_key(places)
        if name == "lm compare":
            # What failed has its line in the table; what rests on it will, too.
            with contextlib.suppress(FileNotFoundError):
                shutil.copytree(work / "attacked", work / "attacked-too", dirs_exist_ok=True)
        during = ask_once if name == "serve" else None
        yield name, watch([sys.executable, "-c", MAIN, *words], places, during=during)


def _first_key(places: Places) -> str:
    command = [sys.executable, "-c", MAIN, "keys", "list", "--ledger", "served.db", "--json"]
    environment = places.make()
    done = subprocess.run(
        command, cwd=places.root / "work", env=environment, capture_output=True, text=True
    )
    match = re.search(r"key-[0-9a-f]+", done.stdout)
    return match[0] if match else "key-0"


# ---- the table -----------------------------------------------------------------------------------


def table_row(name: str, seen: Observation, root: Path) -> str:
    """One line of Markdown; folders of the observed run are named by what they are."""

    def tidy(items: tuple[str, ...]) -> str:
        short = [item.replace(str(root / "home"), "~") for item in items]
        # Of what lies in a folder that is listed too, the folder is enough.
        tops = [item for item in short if not any(item.startswith(f"{top}/") for top in short)]
        return ", ".join(f"`{item}`" for item in tops) or "none"

    outcome = "" if seen.code == 0 else f" (exit {seen.code})"
    cells = (f"`{name}`{outcome}", in_words(seen.sockets), tidy(seen.files), tidy(seen.left))
    return "| " + " | ".join(cells) + " |"


def in_words(sockets: tuple[str, ...]) -> str:
    """Sockets by where they lead: this machine in one phrase, any other address in full."""
    near: Counter[str] = Counter()
    far, bare = [], []
    for item in sockets:
        if _WHERE.search(item) is None:
            bare.append(item)
        elif (scope := scope_of(item)) is None:
            far.append(f"**{item}**")
        else:
            near[f"{item.split()[1]} {scope}"] += 1
    phrases = [*far, *(f"{phrase} ({count})" for phrase, count in sorted(near.items()))]
    # A socket is listed when it is made, too; that says something only where nothing else does.
    return ", ".join(phrases or bare) or "none"


def scope_of(item: str) -> str | None:
    """Where a socket's address is, if on this machine.

    >>> scope_of("AF_INET bind 127.0.0.1:0")
    'on loopback'
    >>> scope_of("AF_INET connect 192.0.2.1:53")
    """
    match = _WHERE.search(item)
    assert match is not None, item
    host = ipaddress.ip_address(match[1])
    # An address of version 4 that is written as one of version 6 is the same.
    host = getattr(host, "ipv4_mapped", None) or host
    if host.is_unspecified:
        return "to every interface"
    if host.is_loopback:
        return "on loopback"
    return "on this machine's own address" if str(host) in own_addresses() else None


def own_addresses() -> set[str]:
    """The addresses of this machine's interfaces, as the kernel lists them."""
    tree = Path("/proc/net/fib_trie").read_text()
    found = set(re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", tree))
    six = Path("/proc/net/if_inet6")
    lines = six.read_text().split("\n") if six.is_file() else []
    return found | {str(ipaddress.ip_address(bytes.fromhex(line[:32]))) for line in lines if line}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="names of scenarios or their beginnings, comma-separated")
    parser.add_argument("--keep", type=Path, help="an empty folder for inputs, outputs and traces")
    parser.add_argument("--search", action="store_true", help="search packages, and run nothing")
    parser.add_argument("--checks", action="store_true", help="print the table of checks")
    options = parser.parse_args()
    if options.checks:
        print(checks_table())
        return 0
    if options.search:
        for package, files in sorted(mentions().items()):
            print(f"{package}: {len(files)} files, such as {files[0]}")
        return 0
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 2
    starts = tuple(options.only.split(",")) if options.only else ("",)
    names = [name for name in SCENARIOS if name.startswith(starts)]
    print("| command | sockets | files elsewhere | left in the temporary folder |")
    print("|---|---|---|---|", flush=True)
    # A short name: Ray puts sockets under it, and the kernel takes 107 letters.
    with tempfile.TemporaryDirectory(prefix="o-") as folder:
        root = Path(folder) if options.keep is None else options.keep.resolve()
        for name, seen in run_all(root, names):
            print(table_row(name, seen, root), flush=True)
            if seen.code:
                print(f"{name}: {seen.errors[-500:]}", file=sys.stderr)
    return 0


# ---- the packages --------------------------------------------------------------------------------

WORDS = "telemetry|posthog|usage_stats|DO_NOT_TRACK"


def mentions(site: Path | None = None) -> dict[str, list[str]]:
    """The files of each folder of packages that speak of telemetry, in Python or native code."""
    site = Path(sysconfig.get_path("purelib")) if site is None else site
    # By grep: Python would take a minute for the gigabytes of native code.
    kinds = ["--include=*.py", "--include=*.so", "--include=*.so.*"]
    command = ["grep", "-rlaiE", *kinds, "-e", WORDS, "."]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True)
    found: dict[str, list[str]] = {}
    for path in map(Path, sorted(done.stdout.splitlines())):
        found.setdefault(path.parts[0], []).append(path.as_posix())
    return found


def checks_table() -> str:
    """What each package would do by itself, as the page of dependencies shows it."""
    from capelet.silence import CHECKS

    lines = ["| package | version | by itself | switch | checked by |", "|---|---|---|---|---|"]
    for package, check in sorted(CHECKS.items()):
        switches = ", ".join(f"`{name}={value}`" for name, value in check.switches.items())
        cells = (f"`{package}`", check.version, check.does or "nothing", switches, check.how)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
