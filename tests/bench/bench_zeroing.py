"""The cost of zeroing memory between users, on the CPU device: zeroing.py."""

import zeroing

if __name__ == "__main__":
    zeroing.main()
