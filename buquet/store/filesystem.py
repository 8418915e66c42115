"""Tells a network file system from a local disk."""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/mounts")

NETWORK = frozenset(
    {
        *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "9p"),
        *("ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2", "gfs", "gfs2", "davfs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs2"),
        *("fuse.goofys", "fuse.mount-s3", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"),
        *("fuse.smbnetfs", "fuse.juicefs", "fuse.seaweedfs", "fuse.curlftpfs", "fuse.vmhgfs-fuse"),
    }
)
"""Types on which SQLite's locks and shared memory can't be relied on."""


def filesystem_of(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the type of the file system that a path is on; None if the machine does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    found: dict[Path, str] = {}
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        found[Path(_unescape(point))] = kind  # what is mounted over another comes later
    real = path.resolve()
    return next((found[each] for each in (real, *real.parents) if each in found), None)


def _unescape(point: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, character)
    return point
