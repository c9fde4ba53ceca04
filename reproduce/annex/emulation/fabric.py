"""Makes and holds the emulated cluster's network, in a process of its own: `network.py` runs this file as a script.

It makes a network namespace for the switches and one for every rank, and holds them open. Nothing has a name in the
file system, and the host's own namespace is never touched: when this process ends, however it ends, the kernel removes
all of it. The process ends with its parent, at the end of standard input, from which it reads, as lines of JSON,

    {"ranks": 4, "per_node": 2, "rate": 33e6, "burst": 1600, "mtu": 1500}   -> {"namespaces": ["/proc/.../fd/4", ...]}
    {"down": true}                                                          -> {"down": ["rank 2's HCA", ...]}

Each rank has its own interface `hca` to the switch between nodes, shaped in both directions (a token bucket at the
rank's end and one at the switch's), and, where nodes have several ranks, `nvlink` to its node's own switch, unshaped.
Ranks have one address each, on `hca`; the routes to the other ranks of a node go through `nvlink`. (One namespace per
node is not enough: gloo does not bind the connections that it opens, so that all of a node would use its first HCA.)
"""

import ctypes
import json
import os
import subprocess
import sys
from typing import NoReturn

CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
QUEUE_BYTES = 16_000_000  # large enough never to be full: a lost packet is sent again only after 0.2 s
# In a rank's namespace: the simplest congestion control, which keeps its window while a rank computes.
SYSCTLS = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0"}


def fail(text: str) -> NoReturn:
    """End this process with an error."""
    raise RuntimeError(text)


def unshare(flags: int) -> None:
    """Move this process into new namespaces of the kinds in `flags` (CLONE_*)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        fail(f"this user may not create a namespace: {os.strerror(ctypes.get_errno())}")


def enter(namespace: int) -> None:
    """Move this process into a network namespace, given as an open file descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET):
        fail(f"cannot enter a namespace: {os.strerror(ctypes.get_errno())}")


def become_root_of_a_user_namespace() -> None:
    """Move into a user namespace where this user is root, so that networks can be made without being root."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def new_namespace() -> int:
    """Make a network namespace and move into it; returns a file descriptor that keeps it alive."""
    unshare(CLONE_NEWNET)
    return os.open("/proc/self/ns/net", os.O_RDONLY)


def batch(tool: str, lines: list[str]) -> None:
    """Run many commands of `ip` or `tc` in one process, in the current network namespace."""
    if not lines:
        return
    text = "\n".join(lines) + "\n"
    done = subprocess.run([tool, "-batch", "-"], input=text, text=True, capture_output=True)
    if done.returncode:
        fail(f"{tool} failed: {' '.join((done.stderr or done.stdout).split())}")


def address(rank: int) -> str:
    """The IPv4 address of a rank."""
    return f"10.77.{rank // 250}.{rank % 250 + 1}"


def build(ranks: int, per_node: int, rate: float, burst: int, mtu: int) -> list[str]:
    """Make the network of the module's docstring; returns a path to the namespace of each rank.

    `rate` is an HCA's in bit/s, `burst` the size of its token bucket in bytes, `mtu` in bytes.
    """
    switch = new_namespace()
    namespaces = [new_namespace() for _ in range(ranks)]
    enter(switch)
    shape = f"root tbf rate {round(rate)} burst {burst} limit {QUEUE_BYTES}"
    nodes = range(0, ranks, per_node)
    lines = ["link add name switch type bridge", f"link set switch mtu {mtu} up"]
    if per_node > 1:
        for node in range(len(nodes)):
            lines += [f"link add name node{node} type bridge", f"link set node{node} up"]
    for rank, namespace in enumerate(namespaces):
        there = f"/proc/{os.getpid()}/fd/{namespace}"
        lines += [
            f"link add hca{rank} mtu {mtu} type veth peer name hca mtu {mtu} netns {there}",
            f"link set hca{rank} master switch up",
        ]
        if per_node > 1:
            lines += [
                f"link add nvlink{rank} type veth peer name nvlink netns {there}",
                f"link set nvlink{rank} master node{rank // per_node} up",
            ]
    batch("ip", lines)
    batch("tc", [f"qdisc add dev hca{rank} {shape}" for rank in range(ranks)])
    for rank, namespace in enumerate(namespaces):
        enter(namespace)
        first = rank // per_node * per_node
        lines = ["link set lo up", "link set hca up", f"addr add {address(rank)}/16 dev hca"]
        if per_node > 1:
            lines.append("link set nvlink up")
            for other in range(first, min(first + per_node, ranks)):
                if other != rank:
                    lines.append(f"route add {address(other)}/32 dev nvlink src {address(rank)}")
        batch("ip", lines)
        batch("tc", [f"qdisc add dev hca {shape}"])
        for name, value in SYSCTLS.items():
            with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
                file.write(value)
    enter(switch)
    return [f"/proc/{os.getpid()}/fd/{namespace}" for namespace in namespaces]


def down() -> list[str]:
    """The links that are not up, in words."""
    shown = subprocess.run(["ip", "-json", "link", "show", "type", "veth"], text=True, capture_output=True).stdout
    links = json.loads(shown or "[]")
    lost = [link["ifname"] for link in links if link.get("operstate") != "UP"]
    return [f"the {'HCA' if name.startswith('hca') else 'NVLink'} of rank {name.lstrip('hcanvlik')}" for name in lost]


def main() -> None:
    """Answer requests from standard input until it ends."""
    if os.geteuid():
        become_root_of_a_user_namespace()
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"down": down()} if "down" in request else {"namespaces": build(**request)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)
