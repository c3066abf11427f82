#include "drivers/cpu/elf_object.h"

#include <elf.h>

#include <cstring>
#include <string>

#include "drivers/cpu/testdata_object.h"
#include "drivers/cpu/worker_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::drivers::cpu {
namespace {

using ::testing::HasSubstr;

// Returns the section header with this name in a mutable copy.
Elf64_Shdr& SectionNamed(std::string& bytes, const char* name) {
  auto& header = *reinterpret_cast<Elf64_Ehdr*>(bytes.data());
  auto* const sections = reinterpret_cast<Elf64_Shdr*>(bytes.data() + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (std::strcmp(bytes.data() + sections[header.e_shstrndx].sh_offset + sections[i].sh_name, name) == 0) {
      return sections[i];
    }
  }
  ADD_FAILURE() << "no section " << name;
  return sections[0];
}

std::string ErrorOf(std::string_view bytes) {
  std::string error;
  EXPECT_EQ(ElfObject::Load(bytes, error), nullptr);
  return error;
}

TEST(ElfObject, LoadsWhatTheCompilerEmits) {
  std::string error;
  const auto object = ElfObject::Load(KernelsObject(), error);
  ASSERT_NE(object, nullptr) << error;
  const ElfSymbol* const table = object->Find("table");
  const ElfSymbol* const launches = object->Find("launches");
  ASSERT_TRUE(table != nullptr && launches != nullptr);
  EXPECT_TRUE(table->is_function);
  EXPECT_FALSE(launches->is_function);
  EXPECT_EQ(launches->size, 8u);
  float out[4] = {};
  float* const pointer = out;
  const void* const arguments[] = {&pointer};
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t group[3] = {i, 0, 0};
    RunGroup(reinterpret_cast<xpud_host_kernel_fn_t>(table->address), arguments, group, nullptr);
  }
  EXPECT_THAT(out, ::testing::ElementsAre(1.0f, 2.0f, 3.0f, 4.0f));
  EXPECT_EQ(*static_cast<uint64_t*>(launches->address), 4u);
}

TEST(ElfObject, EveryPrefixIsRefused) {
  const std::string_view whole = KernelsObject();
  for (size_t size = 0; size < whole.size(); ++size) {
    // An allocation of its own, so that ASan sees reads past its end.
    const std::string prefix(whole.substr(0, size));
    std::string error;
    if (ElfObject::Load(prefix, error) == nullptr) {
      EXPECT_FALSE(error.empty());
    } else {
      ADD_FAILURE() << "loaded from " << size << " of " << whole.size() << " bytes";
    }
  }
}

TEST(ElfObject, NoFlippedByteCrashesTheLoader) {
  const std::string whole(KernelsObject());
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned char mask : {0x01, 0x80, 0xff}) {
      std::string copy = whole;
      copy[at] = static_cast<char>(static_cast<unsigned char>(copy[at]) ^ mask);
      std::string error;
      refused += ElfObject::Load(copy, error) == nullptr;
    }
  }
  EXPECT_GT(refused, whole.size() / 10) << "headers, symbols and relocations are checked";
}

TEST(ElfObject, UndefinedSymbolIsRefusedByName) {
  std::string bytes(KernelsObject());
  const Elf64_Shdr symtab = SectionNamed(bytes, ".symtab");
  auto* const symbols = reinterpret_cast<Elf64_Sym*>(bytes.data() + symtab.sh_offset);
  symbols[symtab.sh_size / sizeof(Elf64_Sym) - 1].st_shndx = SHN_UNDEF;
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("undefined symbol "));
}

TEST(ElfObject, TheFirstSymbolIsNoDefinition) {
  std::string bytes(KernelsObject());
  const Elf64_Shdr symtab = SectionNamed(bytes, ".symtab");
  auto* const symbols = reinterpret_cast<Elf64_Sym*>(bytes.data() + symtab.sh_offset);
  const Elf64_Sym& last = symbols[symtab.sh_size / sizeof(Elf64_Sym) - 1];
  symbols[0] = last;
  symbols[0].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  symbols[0].st_value = uint64_t{1} << 40;  // far outside
  std::string error;
  const auto object = ElfObject::Load(bytes, error);
  ASSERT_NE(object, nullptr) << error;
  const auto whole = ElfObject::Load(KernelsObject(), error);
  EXPECT_EQ(object->symbols().size(), whole->symbols().size());
}

TEST(ElfObject, RelocationOutsideItsSectionIsRefused) {
  std::string bytes(KernelsObject());
  const Elf64_Shdr rela = SectionNamed(bytes, ".rela.text");
  reinterpret_cast<Elf64_Rela*>(bytes.data() + rela.sh_offset)->r_offset = UINT64_MAX - 2;
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("a relocation lies outside its section"));
}

TEST(ElfObject, WritableCodeIsRefused) {
  std::string bytes(KernelsObject());
  SectionNamed(bytes, ".text").sh_flags |= SHF_WRITE;
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("both writable and executable"));
}

TEST(ElfObject, EndlessSectionIsRefused) {
  std::string bytes(KernelsObject());
  SectionNamed(bytes, ".bss").sh_size = UINT64_MAX - 100;
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("too large"));
}

TEST(ElfObject, CodeIsNotWritable) {
  std::string error;
  const auto object = ElfObject::Load(KernelsObject(), error);
  ASSERT_NE(object, nullptr) << error;
  auto* const code = static_cast<volatile char*>(object->Find("scale")->address);
  EXPECT_DEATH(*code = 0, "");
}

}  // namespace
}  // namespace xpud::drivers::cpu
