#include "drivers/cpu/elf_object.h"

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <limits>

#include "drivers/cpu/elf_reader.h"

namespace xpud::drivers::cpu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxImageBytes = uint64_t{256} << 20;
constexpr uint64_t kNotLoaded = UINT64_MAX;

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// The parts of an image, each with one protection.
enum Part { kCode, kConstant, kWritable, kParts };
constexpr std::array<int, kParts> kProtection = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};

bool NeedsGot(uint32_t type) {
  return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}

// Absolute 32-bit addresses: the image must lie in the low 2 GiB.
bool NeedsLowAddress(uint32_t type) { return type == R_X86_64_32 || type == R_X86_64_32S; }

int WidthOf(uint32_t type) {
  switch (type) {
    case R_X86_64_64:
    case R_X86_64_PC64:
      return 8;
    case R_X86_64_32:
    case R_X86_64_32S:
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      return 4;
    default:
      return 0;
  }
}

template <typename T>
bool Fits(int64_t value) {
  return value >= int64_t{std::numeric_limits<T>::min()} && value <= int64_t{std::numeric_limits<T>::max()};
}

}  // namespace

// Loads one object from bytes to a protected image.
class ElfLoader {
 public:
  explicit ElfLoader(std::string_view bytes) : reader_(bytes), object_(new ElfObject) {}

  std::unique_ptr<const ElfObject> Load(std::string& error) {
    const bool loaded = Check(reader_.Read(), reader_.error()) && Place() && FindRelocations() &&
                        CheckSymbols() && Map() && Relocate() && Protect();
    if (loaded) return std::move(object_);
    error = "NATIVE module refused: " + error_;
    return nullptr;
  }

 private:
  struct Relocation {
    uint32_t section;
    Elf64_Rela entry;
  };

  bool Check(bool condition, const std::string& reason) {
    if (!condition) error_ = reason;
    return condition;
  }

  bool Place();
  bool PlacePart(Part part, uint64_t& end);
  bool CheckLoadable(const Elf64_Shdr& section);
  bool IsLoaded(const Elf64_Shdr& section) const;
  Part PartOf(const Elf64_Shdr& section) const;
  bool FindRelocations();
  bool CheckRelocation(const Elf64_Shdr& target, const Elf64_Rela& entry);
  bool CheckSymbols();
  bool Map();
  bool Relocate();
  bool Apply(const Relocation& relocation);
  bool Resolve(uint32_t symbol_index, uint64_t& address);
  uint64_t GotEntry(uint32_t symbol_index, uint64_t symbol_address);
  bool Protect();
  void CollectSymbols();

  std::byte* image() const { return static_cast<std::byte*>(object_->image_); }

  ElfReader reader_;
  std::unique_ptr<ElfObject> object_;
  std::string error_;
  std::vector<uint64_t> offsets_;  // offset of each section in the image, or kNotLoaded
  std::array<uint64_t, kParts + 1> part_begin_{};
  std::vector<Relocation> relocations_;
  bool low_address_ = false;
  uint64_t got_begin_ = 0;
  uint64_t got_count_ = 0;
  std::vector<uint64_t> got_slot_;  // by symbol: 0, or 1 + its entry
};

bool ElfLoader::IsLoaded(const Elf64_Shdr& section) const {
  if ((section.sh_flags & SHF_ALLOC) == 0 || section.sh_type == SHT_NULL) return false;
  // Unwind tables and notes serve debuggers; kernels never throw.
  return section.sh_type != SHT_NOTE && section.sh_type != SHT_X86_64_UNWIND &&
         reader_.SectionName(section) != ".eh_frame";
}

Part ElfLoader::PartOf(const Elf64_Shdr& section) const {
  if ((section.sh_flags & SHF_EXECINSTR) != 0) return kCode;
  if ((section.sh_flags & SHF_WRITE) == 0) return kConstant;
  return reader_.SectionName(section).starts_with(".data.rel.ro") ? kConstant : kWritable;
}

bool ElfLoader::CheckLoadable(const Elf64_Shdr& section) {
  const std::string name(reader_.SectionName(section));
  const bool plain = section.sh_type == SHT_PROGBITS || section.sh_type == SHT_NOBITS;
  const bool both = (section.sh_flags & SHF_WRITE) != 0 && (section.sh_flags & SHF_EXECINSTR) != 0;
  return Check(plain, "section " + name + " has a type that kernels must not have (constructors?)") &&
         Check((section.sh_flags & SHF_TLS) == 0, "section " + name + " is thread-local") &&
         Check((section.sh_flags & SHF_COMPRESSED) == 0, "section " + name + " is compressed") &&
         Check(!both, "section " + name + " is both writable and executable") &&
         Check(section.sh_addralign <= kPage, "section " + name + " wants more than page alignment");
}

bool ElfLoader::Place() {
  offsets_.assign(reader_.sections().size(), kNotLoaded);
  uint64_t end = 0;
  for (int part = 0; part < kParts; ++part) {
    part_begin_[part] = end;
    if (!PlacePart(static_cast<Part>(part), end)) return false;
    if (part == kConstant) {
      got_begin_ = AlignUp(end, 8);
      end = got_begin_;
      // At most one entry for each relocation, so the file's size limits the count.
      for (const Elf64_Shdr& section : reader_.sections()) {
        if (section.sh_type == SHT_RELA) end += section.sh_size / sizeof(Elf64_Rela) * 8;
      }
    }
    end = AlignUp(end, kPage);
  }
  part_begin_[kParts] = end;
  return Check(end != 0 && end <= kMaxImageBytes, "the image would have " + std::to_string(end) + " bytes");
}

bool ElfLoader::PlacePart(Part part, uint64_t& end) {
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const Elf64_Shdr& section = reader_.sections()[i];
    if (!IsLoaded(section) || PartOf(section) != part) continue;
    if (!CheckLoadable(section)) return false;
    if (!Check(section.sh_size <= kMaxImageBytes, "a section is too large")) return false;
    offsets_[i] = AlignUp(end, section.sh_addralign == 0 ? 1 : section.sh_addralign);
    end = offsets_[i] + section.sh_size;
    if (!Check(end <= kMaxImageBytes, "the image would be too large")) return false;
  }
  return true;
}

bool ElfLoader::FindRelocations() {
  for (const Elf64_Shdr& section : reader_.sections()) {
    if (!Check(section.sh_type != SHT_REL, "relocations without addends")) return false;
    if (section.sh_type != SHT_RELA) continue;
    if (!Check(section.sh_info < offsets_.size(), "relocations for no section")) return false;
    if (!Check(section.sh_entsize == sizeof(Elf64_Rela), "relocations of an unknown size")) return false;
    if (offsets_[section.sh_info] == kNotLoaded) continue;
    for (const Elf64_Rela& entry : reader_.Relocations(section)) {
      if (ELF64_R_TYPE(entry.r_info) == R_X86_64_NONE) continue;
      if (!CheckRelocation(reader_.sections()[section.sh_info], entry)) return false;
      relocations_.push_back({section.sh_info, entry});
    }
  }
  return true;
}

bool ElfLoader::CheckRelocation(const Elf64_Shdr& target, const Elf64_Rela& entry) {
  const uint32_t type = ELF64_R_TYPE(entry.r_info);
  const uint64_t width = static_cast<uint64_t>(WidthOf(type));
  if (!Check(width != 0, "relocation type " + std::to_string(type) + " is not supported")) return false;
  const bool inside = target.sh_size >= width && entry.r_offset <= target.sh_size - width;
  low_address_ |= NeedsLowAddress(type);
  return Check(inside, "a relocation lies outside its section") &&
         Check(ELF64_R_SYM(entry.r_info) < reader_.symbols().size(), "a relocation names no symbol");
}

bool ElfLoader::CheckSymbols() {
  for (size_t i = 1; i < reader_.symbols().size(); ++i) {
    const Elf64_Sym& symbol = reader_.symbols()[i];
    const std::string name(reader_.SymbolName(symbol));
    const uint32_t type = ELF64_ST_TYPE(symbol.st_info);
    if (!Check(symbol.st_shndx != SHN_UNDEF, "undefined symbol " + name)) return false;
    if (!Check(symbol.st_shndx != SHN_COMMON, "common symbol " + name)) return false;
    if (!Check(type != STT_TLS && type != STT_GNU_IFUNC, "symbol " + name + " of an unsupported type"))
      return false;
    if (symbol.st_shndx == SHN_ABS) continue;
    if (!Check(symbol.st_shndx < offsets_.size(), "symbol " + name + " lies in no section")) return false;
    const uint64_t limit = reader_.sections()[symbol.st_shndx].sh_size;
    const bool inside = symbol.st_value <= limit && symbol.st_size <= limit - symbol.st_value;
    if (offsets_[symbol.st_shndx] == kNotLoaded) continue;
    if (!Check(inside, "symbol " + name + " lies outside its section")) return false;
  }
  return true;
}

bool ElfLoader::Map() {
  const uint64_t bytes = part_begin_[kParts];
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (low_address_ ? MAP_32BIT : 0);
  void* const image = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (!Check(image != MAP_FAILED, "no memory for the image")) return false;
  object_->image_ = image;
  object_->image_bytes_ = bytes;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    if (offsets_[i] == kNotLoaded) continue;
    const std::string_view contents = reader_.Contents(reader_.sections()[i]);
    if (!contents.empty()) std::memcpy(this->image() + offsets_[i], contents.data(), contents.size());
  }
  return true;
}

bool ElfLoader::Relocate() {
  got_slot_.assign(reader_.symbols().size(), 0);
  for (const Relocation& relocation : relocations_) {
    if (!Apply(relocation)) return false;
  }
  return true;
}

bool ElfLoader::Resolve(uint32_t symbol_index, uint64_t& address) {
  const Elf64_Sym& symbol = reader_.symbols()[symbol_index];
  address = symbol.st_value;
  if (symbol.st_shndx == SHN_ABS) return true;
  if (!Check(symbol.st_shndx < offsets_.size() && offsets_[symbol.st_shndx] != kNotLoaded,
             "a relocation refers to a section that is not loaded")) {
    return false;
  }
  address += reinterpret_cast<uint64_t>(image()) + offsets_[symbol.st_shndx];
  return true;
}

uint64_t ElfLoader::GotEntry(uint32_t symbol_index, uint64_t symbol_address) {
  uint64_t& slot = got_slot_[symbol_index];
  if (slot == 0) slot = ++got_count_;
  std::byte* const entry = image() + got_begin_ + (slot - 1) * 8;
  std::memcpy(entry, &symbol_address, 8);
  return reinterpret_cast<uint64_t>(entry);
}

bool ElfLoader::Apply(const Relocation& relocation) {
  const uint32_t type = ELF64_R_TYPE(relocation.entry.r_info);
  const uint32_t symbol = ELF64_R_SYM(relocation.entry.r_info);
  std::byte* const place = image() + offsets_[relocation.section] + relocation.entry.r_offset;
  uint64_t target = 0;
  if (!Resolve(symbol, target)) return false;
  if (NeedsGot(type)) target = GotEntry(symbol, target);
  // Unsigned arithmetic: a corrupt addend wraps, and the range check below refuses it.
  uint64_t value = target + static_cast<uint64_t>(relocation.entry.r_addend);
  const bool absolute = type == R_X86_64_64 || NeedsLowAddress(type);
  if (!absolute) value -= reinterpret_cast<uint64_t>(place);
  const int64_t number = static_cast<int64_t>(value);
  const bool fits =
      WidthOf(type) == 8 || (type == R_X86_64_32 ? Fits<uint32_t>(number) : Fits<int32_t>(number));
  if (!Check(fits, "a relocated value does not fit its field")) return false;
  std::memcpy(place, &value, static_cast<size_t>(WidthOf(type)));
  return true;
}

bool ElfLoader::Protect() {
  for (int part = 0; part < kParts; ++part) {
    const uint64_t bytes = part_begin_[part + 1] - part_begin_[part];
    if (bytes == 0) continue;
    const int result = mprotect(image() + part_begin_[part], bytes, kProtection[part]);
    if (!Check(result == 0, "the image could not be protected")) return false;
  }
  CollectSymbols();
  return true;
}

void ElfLoader::CollectSymbols() {
  for (const Elf64_Sym& symbol : reader_.symbols()) {
    const bool global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
    if (!global || symbol.st_shndx >= offsets_.size() || offsets_[symbol.st_shndx] == kNotLoaded) continue;
    const bool in_code = PartOf(reader_.sections()[symbol.st_shndx]) == kCode;
    const uint32_t type = ELF64_ST_TYPE(symbol.st_info);
    const bool is_function = type == STT_FUNC && in_code;
    if (!is_function && type != STT_OBJECT) continue;
    object_->symbols_.push_back({std::string(reader_.SymbolName(symbol)),
                                 image() + offsets_[symbol.st_shndx] + symbol.st_value, symbol.st_size,
                                 is_function});
  }
}

std::unique_ptr<const ElfObject> ElfObject::Load(std::string_view bytes, std::string& error) {
  return ElfLoader(bytes).Load(error);
}

ElfObject::~ElfObject() {
  if (image_ != nullptr) munmap(image_, image_bytes_);
}

const ElfSymbol* ElfObject::Find(std::string_view name) const {
  for (const ElfSymbol& symbol : symbols_) {
    if (symbol.name == name) return &symbol;
  }
  return nullptr;
}

}  // namespace xpud::drivers::cpu
