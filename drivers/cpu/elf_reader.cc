#include "drivers/cpu/elf_reader.h"

#include <bit>
#include <cstring>

namespace xpud::drivers::cpu {

bool ElfReader::Fail(std::string reason) {
  error_ = std::move(reason);
  return false;
}

bool ElfReader::Read() {
  Elf64_Ehdr header;
  return ReadHeader(header) && ReadSections(header) && ReadSymbols();
}

bool ElfReader::ReadHeader(Elf64_Ehdr& header) {
  if (bytes_.size() < sizeof(header)) return Fail("shorter than an ELF header");
  std::memcpy(&header, bytes_.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return Fail("not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return Fail("not a 64-bit little-endian ELF file");
  }
  if (header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT)
    return Fail("unknown ELF version");
  if (header.e_machine != EM_X86_64) return Fail("not for x86-64");
  if (header.e_type != ET_REL) return Fail("not a relocatable object");
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return Fail("section headers of an unknown size");
  return true;
}

bool ElfReader::ReadSections(const Elf64_Ehdr& header) {
  const uint64_t bytes = uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  if (bytes == 0) return Fail("no section headers");
  if (header.e_shoff > bytes_.size() || bytes > bytes_.size() - header.e_shoff) {
    return Fail("section headers lie outside the file");
  }
  sections_.resize(header.e_shnum);
  std::memcpy(sections_.data(), bytes_.data() + header.e_shoff, bytes);
  for (const Elf64_Shdr& section : sections_) {
    if (!CheckSection(section)) return false;
  }
  if (header.e_shstrndx >= sections_.size()) return Fail("section names lie in no section");
  section_names_ = Contents(sections_[header.e_shstrndx]);
  return true;
}

bool ElfReader::CheckSection(const Elf64_Shdr& section) {
  if (section.sh_type == SHT_NULL) return true;
  const bool in_file = section.sh_type != SHT_NOBITS;
  if (in_file && (section.sh_offset > bytes_.size() || section.sh_size > bytes_.size() - section.sh_offset)) {
    return Fail("a section lies outside the file");
  }
  if (section.sh_addralign != 0 && !std::has_single_bit(section.sh_addralign)) {
    return Fail("a section's alignment is not a power of two");
  }
  return true;
}

bool ElfReader::ReadSymbols() {
  for (const Elf64_Shdr& section : sections_) {
    if (section.sh_type != SHT_SYMTAB) continue;
    if (!symbols_.empty()) return Fail("two symbol tables");
    if (section.sh_entsize != sizeof(Elf64_Sym) || section.sh_size % sizeof(Elf64_Sym) != 0) {
      return Fail("symbols of an unknown size");
    }
    if (section.sh_link >= sections_.size() || sections_[section.sh_link].sh_type != SHT_STRTAB) {
      return Fail("symbol names lie in no string table");
    }
    symbols_ = Table<Elf64_Sym>(section);
    symbol_names_ = Contents(sections_[section.sh_link]);
  }
  if (symbols_.empty()) return Fail("no symbols");
  symbols_[0] = {};  // as the standard requires, whatever the file contains
  return true;
}

std::string_view ElfReader::Contents(const Elf64_Shdr& section) const {
  if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) return {};
  return bytes_.substr(section.sh_offset, section.sh_size);
}

std::string_view ElfReader::StringAt(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const size_t end = table.find('\0', offset);
  return end == std::string_view::npos ? std::string_view{} : table.substr(offset, end - offset);
}

}  // namespace xpud::drivers::cpu
