"""`python -m specgauge` is the `specgauge` command."""

import sys

if __name__ == "__main__":
    try:
        from .cli import main
    except KeyboardInterrupt:
        print("specgauge: interrupted", file=sys.stderr)
        sys.exit(1)
    sys.exit(main())
