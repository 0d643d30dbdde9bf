"""No file in the repository names the host of a package index: packages have names and versions, and users choose the
index."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOSTS = [
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("test", "pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("download-r2", "pytorch", "org"),
        ("pypi", "nvidia", "com"),
        ("conda", "anaconda", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("proxy", "golang", "org"),
        ("index", "crates", "io"),
        ("static", "crates", "io"),
        ("cdn", "jsdelivr", "net"),
        ("unpkg", "com"),
        ("cdnjs", "cloudflare", "com"),
        ("rubygems", "org"),
        ("repo1", "maven", "org"),
    )
]


def test_no_file_names_the_host_of_a_package_index() -> None:
    """No file in the repository contains the host of a package index, unless git ignores the file."""
    words = [word for host in HOSTS for word in ("-e", host)]
    matches = subprocess.run(
        [
            "git",
            "grep",
            "--no-index",
            "--exclude-standard",
            "--ignore-case",
            "--fixed-strings",
            "--text",
            "--name-only",
            *words,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (matches.returncode, matches.stdout, matches.stderr) == (1, "", "")
