#include "drivers/cuda/cubin.h"

#include <elf.h>

#include <cstring>

#include "gmock/gmock.h"

namespace xpud::drivers::cuda {
namespace {

using ::testing::HasSubstr;

// A file of two sections, as small as CUDA's ELF can be.
std::string SmallCubin() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = 190;
  header.e_shoff = sizeof(header);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  Elf64_Shdr sections[2] = {};
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof(header) + sizeof(sections);
  sections[1].sh_size = 16;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(sections), sizeof(sections));
  return bytes + std::string(16, 'x');
}

TEST(CubinTest, WholeFileIsAccepted) {
  EXPECT_TRUE(IsElf(SmallCubin()));
  EXPECT_EQ(CheckCubin(SmallCubin()), "");
}

TEST(CubinTest, EveryPrefixIsRefused) {
  const std::string whole = SmallCubin();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(CheckCubin(std::string_view(whole).substr(0, size)), HasSubstr("outside the file")) << size;
}

TEST(CubinTest, OffsetsThatOverflowAreRefused) {
  std::string bytes = SmallCubin();
  const uint64_t huge = UINT64_MAX - 4;
  std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_shoff), &huge, sizeof(huge));
  EXPECT_THAT(CheckCubin(bytes), HasSubstr("outside the file"));
  bytes = SmallCubin();
  std::memcpy(bytes.data() + sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size), &huge,
              sizeof(huge));
  EXPECT_THAT(CheckCubin(bytes), HasSubstr("section 1 lies outside the file"));
}

TEST(CubinTest, CodeForAnotherMachineIsRefused) {
  std::string bytes = SmallCubin();
  const uint16_t x86 = EM_X86_64;
  std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_machine), &x86, sizeof(x86));
  EXPECT_THAT(CheckCubin(bytes), HasSubstr("not for NVIDIA GPUs: machine 62"));
}

TEST(CubinTest, PtxIsTextWithAVersion) {
  using std::string_literals::operator""s;
  EXPECT_EQ(CheckPtx(".version 8.0\n.target sm_90\n"), "");
  EXPECT_EQ(CheckPtx(".version 8.0\n\0"s), "") << "a terminated string";
  EXPECT_THAT(CheckPtx("hello"), HasSubstr("neither a cubin nor PTX"));
  EXPECT_THAT(CheckPtx(".version\0 8.0"s), HasSubstr("neither a cubin nor PTX"));
}

}  // namespace
}  // namespace xpud::drivers::cuda
