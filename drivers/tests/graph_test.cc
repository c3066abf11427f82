// Graphs through Debian's loader: capture, instantiate, append.
#include <numeric>
#include <vector>

#include "drivers/tests/driver_under_test.h"
#include "drivers/tests/kernels_under_test.h"

namespace xpud::drivers {
namespace {

constexpr uint32_t kWords = 64;

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (driver_ == nullptr) return;
    begin_ = Extension<xpud_pfnBeginGraphCapture_t>("zeCommandListBeginGraphCaptureExp");
    end_ = Extension<xpud_pfnEndGraphCapture_t>("zeCommandListEndGraphCaptureExp");
    instantiate_ = Extension<xpud_pfnInstantiateGraph_t>("zeCommandListInstantiateGraphExp");
    append_ = Extension<xpud_pfnAppendGraph_t>("zeCommandListAppendGraphExp");
    destroy_ = Extension<xpud_pfnGraphDestroy_t>("zeGraphDestroyExp");
    destroy_executable_ = Extension<xpud_pfnExecutableGraphDestroy_t>("zeExecutableGraphDestroyExp");
    const std::string_view kernels = KernelsFor(GetParam());
    module_ = Module(ZE_MODULE_FORMAT_NATIVE, kernels.data(), kernels.size());
    add_ = Kernel(module_, "add");
    list_ = ImmediateList();
    words_ = Shared<uint64_t>(kWords);
    std::fill(words_, words_ + kWords, 0);
  }
  void TearDown() override {
    if (driver_ != nullptr) {
      EXPECT_EQ(zeCommandListDestroy(list_), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeMemFree(context_, words_), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeKernelDestroy(add_), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeModuleDestroy(module_), ZE_RESULT_SUCCESS);
    }
    DriverTest::TearDown();
  }

  // Appends words_[at] += addend, for `groups` words.
  void Add(uint32_t at, uint64_t addend, uint32_t groups = 1) {
    uint64_t* out = words_ + at;
    const void* const arguments[] = {&out, &addend};
    ASSERT_EQ(launch_(list_, add_, {groups, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
              ZE_RESULT_SUCCESS);
  }
  // Captures the appends of `body`.
  template <typename Body>
  xpud_graph_handle_t Capture(Body&& body) {
    EXPECT_EQ(begin_(list_, nullptr), ZE_RESULT_SUCCESS);
    body();
    xpud_graph_handle_t graph = nullptr;
    EXPECT_EQ(end_(list_, &graph, nullptr), ZE_RESULT_SUCCESS);
    return graph;
  }
  xpud_executable_graph_handle_t Instantiate(xpud_graph_handle_t graph) {
    xpud_executable_graph_handle_t executable = nullptr;
    EXPECT_EQ(instantiate_(graph, &executable, nullptr), ZE_RESULT_SUCCESS);
    return executable;
  }
  void Append(xpud_executable_graph_handle_t executable, ze_event_handle_t signal = nullptr) {
    ASSERT_EQ(append_(list_, executable, nullptr, signal, 0, nullptr), ZE_RESULT_SUCCESS);
  }

  xpud_pfnBeginGraphCapture_t begin_ = nullptr;
  xpud_pfnEndGraphCapture_t end_ = nullptr;
  xpud_pfnInstantiateGraph_t instantiate_ = nullptr;
  xpud_pfnAppendGraph_t append_ = nullptr;
  xpud_pfnGraphDestroy_t destroy_ = nullptr;
  xpud_pfnExecutableGraphDestroy_t destroy_executable_ = nullptr;
  ze_module_handle_t module_ = nullptr;
  ze_kernel_handle_t add_ = nullptr;
  ze_command_list_handle_t list_ = nullptr;
  uint64_t* words_ = nullptr;
};

TEST_P(GraphTest, CapturesWithoutRunningAndRunsAsOftenAsAppended) {
  xpud_graph_handle_t graph = Capture([&] {
    Add(0, 1);
    Add(0, 2, 8);
  });
  Finish(list_);
  EXPECT_EQ(words_[0], 0u);
  xpud_executable_graph_handle_t executable = Instantiate(graph);
  EXPECT_EQ(destroy_(graph), ZE_RESULT_SUCCESS);
  for (int i = 0; i < 5; ++i) {
    Append(executable);
    Add(0, 100);
  }
  Finish(list_);
  EXPECT_EQ(words_[0], 515u);
  EXPECT_EQ(words_[7], 10u);
  EXPECT_EQ(destroy_executable_(executable), ZE_RESULT_SUCCESS);
}

TEST_P(GraphTest, KeepsTheOrderOfItsCommandsAndOfTheList) {
  xpud_graph_handle_t graph = Capture([&] {
    uint64_t* const from = words_;
    for (uint32_t i = 1; i < kWords; ++i) {
      Add(i - 1, 1);
      ASSERT_EQ(zeCommandListAppendMemoryCopy(list_, words_ + i, from + i - 1, 8, nullptr, 0, nullptr),
                ZE_RESULT_SUCCESS);
    }
  });
  xpud_executable_graph_handle_t executable = Instantiate(graph);
  Add(0, 10);
  Append(executable);
  Add(kWords - 1, 1000);
  Finish(list_);
  for (uint32_t i = 0; i + 1 < kWords; ++i) EXPECT_EQ(words_[i], 11u + i);
  EXPECT_EQ(words_[kWords - 1], 1010u + kWords - 1);
  EXPECT_EQ(destroy_executable_(executable), ZE_RESULT_SUCCESS);
  EXPECT_EQ(destroy_(graph), ZE_RESULT_SUCCESS);
}

TEST_P(GraphTest, SignalsAnEventWhenAllIsDone) {
  xpud_graph_handle_t graph = Capture([&] {
    for (int i = 0; i < 100; ++i) Add(0, 1, kWords);
  });
  xpud_executable_graph_handle_t executable = Instantiate(graph);
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t event = Event(pool, 0);
  Append(executable, event);
  ASSERT_EQ(zeEventHostSynchronize(event, kPatienceNs), ZE_RESULT_SUCCESS);
  EXPECT_EQ(std::accumulate(words_, words_ + kWords, uint64_t{0}), 100u * kWords);
  Finish(list_);
  EXPECT_EQ(zeEventDestroy(event), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  EXPECT_EQ(destroy_(graph), ZE_RESULT_SUCCESS);
  EXPECT_EQ(destroy_executable_(executable), ZE_RESULT_SUCCESS);
}

TEST_P(GraphTest, CapturesAWaitForAnEventThatTheHostSignals) {
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t event = Event(pool, 0);
  xpud_graph_handle_t graph = Capture([&] {
    ASSERT_EQ(zeCommandListAppendWaitOnEvents(list_, 1, &event), ZE_RESULT_SUCCESS);
    Add(0, 1);
  });
  xpud_executable_graph_handle_t executable = Instantiate(graph);
  Append(executable);
  EXPECT_EQ(synchronize_(list_, 1'000'000), ZE_RESULT_NOT_READY);
  EXPECT_EQ(words_[0], 0u);
  ASSERT_EQ(zeEventHostSignal(event), ZE_RESULT_SUCCESS);
  Finish(list_);
  EXPECT_EQ(words_[0], 1u);
  EXPECT_EQ(zeEventDestroy(event), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  EXPECT_EQ(destroy_(graph), ZE_RESULT_SUCCESS);
  EXPECT_EQ(destroy_executable_(executable), ZE_RESULT_SUCCESS);
}

TEST_P(GraphTest, OutlivesItsHandleWhileItRuns) {
  xpud_graph_handle_t graph = Capture([&] {
    for (int i = 0; i < 200; ++i) Add(0, 1, kWords);
  });
  xpud_executable_graph_handle_t executable = Instantiate(graph);
  EXPECT_EQ(destroy_(graph), ZE_RESULT_SUCCESS);
  for (int i = 0; i < 10; ++i) Append(executable);
  EXPECT_EQ(destroy_executable_(executable), ZE_RESULT_SUCCESS);
  Finish(list_);
  EXPECT_EQ(words_[kWords - 1], 2000u);
}

TEST_P(GraphTest, RefusesWhatIsOutOfOrder) {
  xpud_graph_handle_t graph = nullptr;
  EXPECT_EQ(end_(list_, &graph, nullptr), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(begin_(list_, nullptr), ZE_RESULT_SUCCESS);
  EXPECT_EQ(begin_(list_, nullptr), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(end_(list_, &graph, nullptr), ZE_RESULT_SUCCESS);
  xpud_executable_graph_handle_t executable = Instantiate(graph);  // empty
  Append(executable);
  Finish(list_);
  EXPECT_EQ(begin_(nullptr, nullptr), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  EXPECT_EQ(begin_(list_, &graph), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(end_(list_, nullptr, nullptr), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  EXPECT_EQ(
      append_(list_, reinterpret_cast<xpud_executable_graph_handle_t>(graph), nullptr, nullptr, 0, nullptr),
      ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(destroy_(graph), ZE_RESULT_SUCCESS);
  EXPECT_EQ(destroy_(graph), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(destroy_executable_(executable), ZE_RESULT_SUCCESS);
  const ze_command_list_desc_t desc{ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, nullptr, 0, 0};
  ze_command_list_handle_t regular = nullptr;
  ASSERT_EQ(zeCommandListCreate(context_, device_, &desc, &regular), ZE_RESULT_SUCCESS);
  EXPECT_EQ(begin_(regular, nullptr), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
  EXPECT_EQ(zeCommandListDestroy(regular), ZE_RESULT_SUCCESS);
}

XPUD_ON_ALL_BACK_ENDS(GraphTest);

}  // namespace
}  // namespace xpud::drivers
