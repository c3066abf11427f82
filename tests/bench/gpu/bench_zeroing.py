"""What zeroing between users costs, on a GPU: ../zeroing.py."""

import zeroing

if __name__ == "__main__":
    zeroing.main()
