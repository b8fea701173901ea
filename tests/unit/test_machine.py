"""What the machine allows: limits of containers as Linux writes them, and nvidia-smi in good and bad days."""

import os

import pytest

from helpers import machine, preflight
from helpers.machine import FreeMemory, Gpu, GpuUser, NvidiaSmiError

V2 = "0::/user/job\n"
V1 = "9:name=systemd:/docker/f00\n4:cpu,memory:/docker/f00\n0::/\n"
STAT_V2 = "anon 1\ninactive_file 200\nactive_file 100\nshmem 7\n"
STAT_V1 = "inactive_file 9\ntotal_inactive_file 200\ntotal_active_file 100\n"

GROUPS = [
    (
        "v2, the limit is the container's own",
        V2,
        {"memory.max": "1000", "memory.current": "900", "memory.stat": STAT_V2},
        [(1000, 400)],
    ),
    (
        "v2, a job within a limited user",
        V2,
        {
            "user/job/memory.max": "500",
            "user/job/memory.current": "100",
            "user/memory.max": "1000",
            "user/memory.current": "990",
        },
        [(500, 400), (1000, 10)],
    ),
    ("v2, no limit", V2, {"memory.max": "max\n", "memory.current": "900"}, []),
    ("v2, over the limit", V2, {"memory.max": "1000", "memory.current": "1200"}, [(1000, 0)]),
    (
        "v2, statistics of an odd form",
        V2,
        {"memory.max": "1000", "memory.current": "900", "memory.stat": "x"},
        [(1000, 100)],
    ),
    (
        "v1, only the container's own group is seen",
        V1,
        {
            "memory/memory.limit_in_bytes": "1000",
            "memory/memory.usage_in_bytes": "900",
            "memory/memory.stat": STAT_V1,
        },
        [(1000, 400)],
    ),
    (
        "v1, no limit",
        V1,
        {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "900"},
        [],
    ),
    ("a group outside of what is seen", "0::/../../other\n", {"memory.max": "10", "memory.current": "4"}, [(10, 6)]),
    ("no control groups", "", {}, []),
    ("a limit that is no number", V2, {"memory.max": "much", "memory.current": "900"}, []),
]


@pytest.mark.parametrize(
    ("membership", "files", "limits"), [case[1:] for case in GROUPS], ids=[case[0] for case in GROUPS]
)
def test_limits_of_control_groups(tmp_path, membership, files, limits):
    """Each limited group above this process counts; files that the system keeps in memory count as free."""
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    assert list(machine.container_limits(tmp_path / "root", tmp_path / "membership")) == limits


def test_systems_without_control_groups(tmp_path):
    """macOS and Windows have no such files, and no limits of this kind."""
    assert list(machine.container_limits(tmp_path / "none", tmp_path / "none either")) == []


@pytest.mark.parametrize(
    ("groups", "addresses", "expected"),
    [
        ([], None, FreeMemory(1000)),
        ([(800, 300), (700, 500)], None, FreeMemory(300, "container", 800)),
        ([(5000, 4000)], None, FreeMemory(1000)),
        ([], 1, FreeMemory(0, "ulimit -v", 1)),
    ],
    ids=["none", "two groups", "a limit above the machine's memory", "addresses"],
)
def test_the_tightest_limit_counts(monkeypatch, groups, addresses, expected):
    """Free memory is the least that any limit leaves, and says which one that is."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1000})())
    monkeypatch.setattr(machine, "container_limits", lambda: iter(groups))
    monkeypatch.setattr(machine, "address_limit", lambda: addresses)
    assert machine.free_memory() == expected


def test_fit_generator_hears_of_a_container(monkeypatch):
    """A queue that fits into the machine and not into what the container may take is warned about."""
    queues = [("the queue", 10, 10**6)]
    monkeypatch.setattr(machine, "container_limits", lambda: iter([(10**8, 3 * 10**7)]))
    preflight.warn_about_queue(queues)
    monkeypatch.setattr(machine, "container_limits", lambda: iter([(10**8, 10**7)]))
    with pytest.warns(preflight.QueueMemoryWarning, match=r"0\.0 GB, and 0\.0 GB of memory are free"):
        preflight.warn_about_queue(queues)


def test_limits_of_the_shell_are_read(monkeypatch):
    """The soft limits count, and infinity is none; a system without such limits has none."""
    resource = pytest.importorskip("resource")
    soft = {resource.RLIMIT_AS: resource.RLIM_INFINITY, resource.RLIMIT_NOFILE: 64}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft[kind], resource.RLIM_INFINITY))
    assert (machine.address_limit(), machine.open_files_limit()) == (None, 64)
    monkeypatch.setattr(machine, "resource", None)
    assert (machine.address_limit(), machine.open_files_limit()) == (None, None)


# -- nvidia-smi -------------------------------------------------------------------------------------------------------

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running."
)
MIB = 2**20

ANSWERS = [
    ("one", "echo 'Tesla T4, 15360, 14923'", [Gpu("Tesla T4", 15360 * MIB, 14923 * MIB)]),
    ("two", "echo 'A, 10, 9'; echo 'B, 20, 1'", [Gpu("A", 10 * MIB, 9 * MIB), Gpu("B", 20 * MIB, MIB)]),
    ("a name with commas", "echo 'NVIDIA GB10, rev. 2, 10, 9'", [Gpu("NVIDIA GB10, rev. 2", 10 * MIB, 9 * MIB)]),
    ("memory that is not told", "echo 'GB10, [N/A], [Not Supported]'", [Gpu("GB10", None, None)]),
    ("units all the same", "echo 'T4, 10 MiB, 9 MiB'", [Gpu("T4", 10 * MIB, 9 * MIB)]),
    ("a warning in front", "echo 'WARNING: infoROM is corrupted'; echo 'T4, 10, 9'", [Gpu("T4", 10 * MIB, 9 * MIB)]),
    ("nothing", "true", []),
]
FAILURES = [
    ("no driver", f'echo "{NO_DRIVER}"; exit 9', NO_DRIVER),
    ("on standard error", "echo Failed >&2; exit 1", "Failed"),
    ("no devices", "echo 'No devices were found'; exit 6", "No devices were found"),
    ("no devices, and no exit code", "echo 'No devices were found'", "No devices were found"),
    ("no words", "exit 3", "exit code 3"),
    ("no answer", "exec sleep 60", "no answer within 0.5 s"),
    ("bytes that are no text", r"printf '\377\376'; exit 1", "\ufffd\ufffd"),
]


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put a shell script in the place of nvidia-smi."""
    if os.name == "nt":
        pytest.skip("the script is one of a POSIX shell")

    def install(script: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return install


@pytest.mark.parametrize(("script", "found"), [case[1:] for case in ANSWERS], ids=[case[0] for case in ANSWERS])
def test_gpus_that_nvidia_smi_lists(nvidia_smi, script, found):
    """Name, total and free memory are read; what is not told is None."""
    nvidia_smi(script)
    assert machine.gpus() == found


@pytest.mark.parametrize(("script", "words"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
def test_nvidia_smi_that_fails(nvidia_smi, monkeypatch, script, words):
    """Its words are in the error; it is not waited for without end."""
    monkeypatch.setattr(machine, "_ANSWER_S", 0.5 if words.startswith("no answer") else 20)
    nvidia_smi(script)
    with pytest.raises(NvidiaSmiError) as caught:
        machine.gpus()
    assert str(caught.value) == words
    assert machine.gpu_users() == []


def test_nvidia_smi_that_cannot_be_started(nvidia_smi, tmp_path):
    """A program for another processor, say, is told of as well."""
    nvidia_smi("")
    (tmp_path / "nvidia-smi").write_text("no program")
    with pytest.raises(NvidiaSmiError, match="it cannot be started: Exec format error"):
        machine.gpus()


def test_no_nvidia_smi(monkeypatch):
    """A machine without it has no GPUs."""
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert machine.gpus() == []


def test_processes_on_the_gpu(nvidia_smi):
    """They are named without their folders, which can hold the name of a person."""
    nvidia_smi(
        "echo '11, /home/anna/venv/bin/python, 900'; echo '12, [Not Found], [N/A]'; echo 'No running processes found'; "
        r"echo '13, C:\Users\anna\python.exe, 5'"
    )
    assert machine.gpu_users() == [
        GpuUser(11, "python", 900 * MIB),
        GpuUser(12, "[Not Found]", None),
        GpuUser(13, "python.exe", 5 * MIB),
    ]


@pytest.mark.parametrize(
    ("package", "modules", "library", "able"),
    [
        ("tensorflow", {"nvidia", "nvidia.cudnn"}, None, True),
        ("tensorflow", {"nvidia"}, None, False),
        ("tensorflow", set(), None, False),
        ("tensorflow", set(), "libcudnn.so.9", True),
        ("jax", {"jax_cuda13_plugin"}, None, True),
        ("jax", {"nvidia", "nvidia.cudnn"}, "libcudnn.so.9", False),
    ],
)
def test_cuda_libraries(monkeypatch, package, modules, library, able):
    """TensorFlow needs cuDNN, by pip or from the system; JAX needs its plugin."""

    def find_spec(name):
        if "." in name and name.split(".")[0] not in modules:
            raise ModuleNotFoundError(name)
        return object() if name in modules else None

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    monkeypatch.setattr(machine, "find_library", lambda _: library)
    assert machine.has_cuda(package) is able
