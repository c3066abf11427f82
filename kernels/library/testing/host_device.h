// A CPU device for the tests and benchmarks of this folder: a KernelStore, and workers that run the groups of
// HOST kernels. Used by one thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/library/testing/device.h"
#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::testing {

class HostDevice : public Device {
 public:
  explicit HostDevice(int workers) : scratch_(workers) {
    for (auto& scratch : scratch_)
      scratch.reset(static_cast<std::byte*>(std::aligned_alloc(64, XPUD_HOST_SCRATCH_BYTES)));
    for (int i = 1; i < workers; ++i) threads_.emplace_back([this, i] { Work(i); });
  }
  ~HostDevice() override {
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const Kernel* Add(std::shared_ptr<const ModuleImage> image, std::string entry) override {
    modules_.push_back(std::move(image));
    return AddTo(modules_.back().get(), std::move(entry));
  }
  const Kernel* AddEntry(const Kernel& sibling, std::string entry) override {
    return AddTo(sibling.module, std::move(entry));
  }

  Operand Place(HostTensor& tensor) override { return tensor.operand(); }

  absl::StatusOr<void*> Workspace(size_t bytes) override {
    workspace_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)));
    return static_cast<void*>(workspace_.back().get());
  }

  void Run(const LaunchList& launches) override {
    for (size_t i = 0; i < launches.size(); ++i) RunLaunch(launches[i]);
    workspace_.clear();
  }

 private:
  const Kernel* AddTo(const ModuleImage* module, std::string entry) {
    kernels_.push_back(
        std::make_unique<Kernel>(Kernel{static_cast<uint32_t>(kernels_.size()), module, std::move(entry)}));
    HostKernelOf(*kernels_.back());
    return kernels_.back().get();
  }

  void RunLaunch(const Launch& launch) {
    const xpud_host_kernel_t& kernel = HostKernelOf(launch.kernel());
    XPUD_CHECK(kernel.num_args == launch.argument_count());
    run_ = kernel.run;
    arguments_ = launch.arguments();
    groups_ = launch.groups();
    total_ = groups_[0] * groups_[1] * groups_[2];
    if (total_ == 1 || threads_.empty()) {
      next_ = 0;
      return Claim(0);
    }
    next_ = 0;
    busy_ = static_cast<int>(threads_.size());
    generation_.fetch_add(1);
    generation_.notify_all();
    Claim(0);
    while (busy_ != 0) __builtin_ia32_pause();
  }

  void Claim(int worker) {
    for (uint32_t i; (i = next_.fetch_add(1)) < total_;) {
      const uint32_t group[3] = {i % groups_[0], i / groups_[0] % groups_[1], i / groups_[0] / groups_[1]};
      run_(arguments_, group, scratch_[worker].get());
    }
  }

  void Work(int worker) {
    for (uint64_t seen = 0;;) {
      for (int spin = 0; spin < 20000 && generation_.load() == seen; ++spin) __builtin_ia32_pause();
      generation_.wait(seen);
      seen = generation_.load();
      if (stop_) return;
      Claim(worker);
      --busy_;
    }
  }

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> scratch_;
  std::vector<std::shared_ptr<const ModuleImage>> modules_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<std::unique_ptr<std::byte, Free>> workspace_;
  xpud_host_kernel_fn_t run_ = nullptr;
  const void* const* arguments_ = nullptr;
  std::array<uint32_t, 3> groups_{};
  uint32_t total_ = 0;
  std::atomic<uint32_t> next_{0};
  std::atomic<int> busy_{0};
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace xpud::kernels::testing
