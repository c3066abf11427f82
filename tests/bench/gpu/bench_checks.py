"""What checking clients costs, on a GPU: ../checks.py."""

import checks

if __name__ == "__main__":
    checks.main()
