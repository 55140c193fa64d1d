"""`herd verify` and `herd preflight`: check the running servers against the plan, or a host before a run."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import inventory_option, json_option, rigs_argument


@click.command()
@rigs_argument
@click.option("--deep", is_flag=True, help="Also read every model file, and compare its sha256.")
@click.option("-v", "--verbose", is_flag=True, help="Print all checks, and the response of each server.")
@inventory_option
@json_option
@click.pass_obj
def verify(inventory: Path | None, rigs: tuple[str, ...], deep: bool, verbose: bool, as_json: bool) -> None:
    """Check the running servers against the plan.

    It sends requests as clients do: a chat, a JSON schema and a tool call, or embeddings or a rerank. It prints one
    line for each rig, and below it what failed (✗) or is in doubt (?).

    With --deep, it also compares the models' files with their hashes. That takes minutes for each 100 GB, and uses only
    spare disk and CPU time. `herd up` fetches a damaged file again.

    Exit codes: 0 every check passed or is in doubt; 1 a check failed, or a host cannot be reached; 2 the inventory is
    unusable; 130 Ctrl-C.

    \b
    Examples:
      herd verify              the whole fleet
      herd verify -v attic     one rig, with all checks
      herd verify --deep duo   one rig, with the hashes of its models
    """
    from llamaherd.cli.verification import VerifyOptions, verify_rigs  # late: the help needs none of it

    verify_rigs(inventory, rigs, VerifyOptions(deep, verbose, as_json))


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def preflight(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Compare each host with the plan, without changing it.

    It checks system, kernel, GPUs on the bus (also without a driver), Secure Boot, compilers, disks, RAM, running
    package managers and ports. `herd up` refuses to start for the same reasons.

    Exit codes: 0 no obstacles; 1 an obstacle, or a host cannot be reached; 2 the inventory is unusable.

    \b
    Examples:
      herd preflight               the whole fleet
      herd preflight duo --json    one rig, as JSON
    """
    from llamaherd.cli.verification import preflight_rigs  # late: the help needs none of it

    preflight_rigs(inventory, rigs, as_json)
