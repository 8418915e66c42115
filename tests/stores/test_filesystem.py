from __future__ import annotations

from pathlib import Path

import pytest

from buquet.store.filesystem import filesystem_of

MOUNTS = r"""
proc /proc proc rw 0 0
/dev/vda / ext4 rw 0 0
server:/export /srv/shared nfs4 rw 0 0
/dev/vdb /srv/shared/local xfs rw 0 0
//server/share /srv/with\040space cifs rw 0 0
/dev/vdc /srv/over ext4 rw 0 0
me@server: /srv/over fuse.sshfs rw 0 0
""".lstrip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me", "ext4"),
        ("/srv/shared/queue", "nfs4"),
        ("/srv/shared", "nfs4"),
        ("/srv/shared-not", "ext4"),
        ("/srv/shared/local/queue", "xfs"),
        ("/srv/with space/queue", "cifs"),
        ("/srv/over", "fuse.sshfs"),
    ],
)
def test_the_nearest_mount_above_a_path_counts(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)

    assert filesystem_of(Path(path), mounts) == kind


def test_a_link_counts_where_it_leads(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    link = tmp_path / "link"
    link.symlink_to("/srv/shared")

    assert filesystem_of(link, mounts) == "nfs4"


def test_a_machine_that_does_not_tell_is_not_asked_further(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path, tmp_path / "missing") is None
