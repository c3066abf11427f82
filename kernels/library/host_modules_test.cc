#include "kernels/library/host_modules.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "kernels/library/cublaslt/cublaslt_matmul.h"
#include "kernels/library/planners.h"

namespace xpud::kernels {
namespace {

// Records the kernels that planners add.
class Recorder : public KernelStore {
 public:
  const Kernel* Add(std::shared_ptr<const ModuleImage> image, std::string entry) override {
    images_.push_back(std::move(image));
    kernels_.push_back(std::make_unique<Kernel>(Kernel{0, images_.back().get(), std::move(entry)}));
    return kernels_.back().get();
  }
  const Kernel* AddEntry(const Kernel& sibling, std::string entry) override {
    kernels_.push_back(std::make_unique<Kernel>(Kernel{0, sibling.module, std::move(entry)}));
    return kernels_.back().get();
  }
  void InBackground(std::function<void()>) override {}
  std::shared_ptr<const Code> Assemble(std::string_view) override { return nullptr; }

  const std::vector<std::unique_ptr<Kernel>>& kernels() const { return kernels_; }

 private:
  std::vector<std::shared_ptr<const ModuleImage>> images_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

TEST(HostModules, EveryKernelThatIsAddedIsFoundByName) {
  Recorder store;
  const auto onednn = CreateOnednnMatmul(store, 1), attention = CreateHostAttention(store, 1),
             cublaslt = CreateCublasltMatmul(store, [](const Launch&) { return 0; });
  std::set<const xpud_host_kernel_t*> found;
  for (const auto& kernel : store.kernels()) {
    ASSERT_EQ(kernel->module->format, ModuleImage::Format::kHost);
    const xpud_host_module_t* const module = FindHostModule(kernel->module->bytes);
    ASSERT_NE(module, nullptr) << kernel->module->bytes;
    EXPECT_EQ(module->version, XPUD_HOST_MODULE_VERSION);
    for (uint32_t i = 0; i < module->num_kernels; ++i)
      if (kernel->entry == module->kernels[i].name) found.insert(&module->kernels[i]);
  }
  EXPECT_EQ(found.size(), store.kernels().size()) << "an entry is missing, or two kernels are one";
  EXPECT_EQ(found.size(), 5u + 3 + 2);
}

TEST(HostModules, OtherNamesAreNotFound) {
  EXPECT_EQ(FindHostModule(""), nullptr);
  EXPECT_EQ(FindHostModule("attentio"), nullptr);
}

// The bytes and offsets of a launch, which another process gets, are enough to call it.
TEST(Launch, BytesAndOffsetsGiveTheArguments) {
  Launch launch;
  launch.Reset(nullptr, 1);
  launch.Push(uint8_t{1});
  launch.Push(int64_t{-2});
  launch.Push(uint16_t{3});
  launch.Push(4.5);
  ASSERT_EQ(launch.argument_offsets().size(), launch.argument_count());
  EXPECT_EQ(launch.argument_bytes().size(), 32u);
  for (size_t i = 0; i < launch.argument_count(); ++i)
    EXPECT_EQ(launch.argument_bytes().data() + launch.argument_offsets()[i], launch.arguments()[i]);
  EXPECT_EQ(*static_cast<const double*>(launch.arguments()[3]), 4.5);
  launch.Reset(nullptr, 1);
  EXPECT_TRUE(launch.argument_bytes().empty());
  EXPECT_TRUE(launch.argument_offsets().empty());
}

}  // namespace
}  // namespace xpud::kernels
