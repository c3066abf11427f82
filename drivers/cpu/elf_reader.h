// Reads the tables of an untrusted ELF relocatable object. Returns views of the caller's bytes. Not
// thread-safe.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xpud::drivers::cpu {

class ElfReader {
 public:
  explicit ElfReader(std::string_view bytes) : bytes_(bytes) {}

  // Reads headers, sections and symbols. Returns false, with the reason in error(), if they are malformed.
  bool Read();
  const std::string& error() const { return error_; }

  const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  const std::vector<Elf64_Sym>& symbols() const { return symbols_; }
  // The bytes of a section in the file; empty for NOBITS.
  std::string_view Contents(const Elf64_Shdr& section) const;
  std::string_view SectionName(const Elf64_Shdr& section) const {
    return StringAt(section_names_, section.sh_name);
  }
  std::string_view SymbolName(const Elf64_Sym& symbol) const {
    return StringAt(symbol_names_, symbol.st_name);
  }
  // The relocations of a SHT_RELA section.
  std::vector<Elf64_Rela> Relocations(const Elf64_Shdr& section) const { return Table<Elf64_Rela>(section); }

 private:
  bool Fail(std::string reason);
  bool ReadHeader(Elf64_Ehdr& header);
  bool ReadSections(const Elf64_Ehdr& header);
  bool CheckSection(const Elf64_Shdr& section);
  bool ReadSymbols();
  // Returns "" if the offset is outside the table, or the string does not end inside it.
  static std::string_view StringAt(std::string_view table, uint64_t offset);
  template <typename Entry>
  std::vector<Entry> Table(const Elf64_Shdr& section) const {
    const std::string_view contents = Contents(section);
    std::vector<Entry> entries(contents.size() / sizeof(Entry));
    contents.copy(reinterpret_cast<char*>(entries.data()), entries.size() * sizeof(Entry));
    return entries;
  }

  const std::string_view bytes_;
  std::string error_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::string_view section_names_;
  std::string_view symbol_names_;
};

}  // namespace xpud::drivers::cpu
