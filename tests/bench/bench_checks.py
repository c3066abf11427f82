"""What checking clients costs, on the CPU device: checks.py."""

import checks

if __name__ == "__main__":
    checks.main()
