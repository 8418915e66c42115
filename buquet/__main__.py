"""So that `python -m buquet` does what `buquet` does."""

from buquet.cli.app import main

if __name__ == "__main__":
    main()
