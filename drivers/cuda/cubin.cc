#include "drivers/cuda/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace xpud::drivers::cuda {
namespace {

constexpr uint16_t kEmCuda = 190;

// Whether `count` records of `size` bytes at `offset` lie inside `total` bytes.
bool Fits(uint64_t offset, uint64_t count, uint64_t size, uint64_t total) {
  return offset <= total && (size == 0 || count <= (total - offset) / size);
}

}  // namespace

bool IsElf(std::string_view bytes) { return bytes.substr(0, SELFMAG) == std::string_view(ELFMAG, SELFMAG); }

std::string CheckCubin(std::string_view bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header)) return "the ELF header lies outside the file";
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kEmCuda)
    return "the ELF file is not for NVIDIA GPUs: machine " + std::to_string(header.e_machine);
  if (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr))
    return "section headers of a foreign size";
  if (!Fits(header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr), bytes.size()))
    return "the section headers lie outside the file";
  if (!Fits(header.e_phoff, header.e_phnum, header.e_phentsize, bytes.size()))
    return "the program headers lie outside the file";
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type != SHT_NOBITS && !Fits(section.sh_offset, section.sh_size, 1, bytes.size()))
      return "section " + std::to_string(i) + " lies outside the file";
  }
  return "";
}

std::string CheckPtx(std::string_view bytes) {
  while (!bytes.empty() && bytes.back() == '\0') bytes.remove_suffix(1);
  if (bytes.find('\0') != std::string_view::npos || bytes.find(".version") == std::string_view::npos)
    return "the module is neither a cubin nor PTX text";
  return "";
}

}  // namespace xpud::drivers::cuda
