// Equal contents in one block: over a device that has only memory, with sessions whose commands come from
// rings. Contents are real, time is virtual.
#include "daemon/stream/merger.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/lane/testing/memory_device.h"
#include "daemon/memory/address_sanitizer.h"
#include "daemon/session/device_session.h"
#include "daemon/session/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport/shm_client.h"
#include "proto/transport/shm_server.h"
#include "proto/wire/encode.h"

namespace xpud::lane {
namespace {

using ::testing::HasSubstr;
using wire::CommandKind;

constexpr uint64_t kMiB = 1 << 20, kMillisecond = 1'000'000, kSecond = 1000 * kMillisecond;
constexpr uint64_t kBytes = 2 * kMiB;  // of most buffers

// Looks at the memory when it is asked for the result, which it holds back if a test says so.
class TestComparer final : public stream::Comparer {
 public:
  uint64_t piece_bytes() const override { return kMiB; }
  absl::StatusOr<bool> StartDigest(const std::byte* memory, uint64_t bytes) override {
    ++digests;
    return Start(memory, nullptr, bytes);
  }
  absl::StatusOr<bool> StartCompare(const std::byte* a, const std::byte* b, uint64_t bytes) override {
    ++comparisons;
    return Start(a, b, bytes);
  }
  absl::StatusOr<std::optional<Result>> Poll() override {
    if (!failure.ok()) return failure;
    if (holds) return std::nullopt;
    EXPECT_FALSE(memory::IsAccessForbidden(a_, bytes_)) << "it was freed meanwhile";
    Result result = {{}, took_ns};
    if (b_ != nullptr) {
      EXPECT_FALSE(memory::IsAccessForbidden(b_, bytes_)) << "it was freed meanwhile";
      result.words[0] = std::memcmp(a_, b_, bytes_) != 0;
    } else if (!collides) {
      for (uint64_t at = 0; at < bytes_; at += sizeof(uint64_t)) {
        uint64_t word;
        std::memcpy(&word, a_ + at, sizeof(word));
        result.words[0] += (word ^ at) * 0x9e3779b97f4a7c15;
      }
    }
    return result;
  }

  void Reset() override {
    if (on_reset) on_reset();
    failure = absl::OkStatus();
    holds = false;
  }

  std::function<void()> on_reset;
  absl::Status failure;
  bool holds = false;
  bool collides = false;             // all digests are equal
  uint64_t took_ns = 0;              // each piece
  int digests = 0, comparisons = 0;  // pieces

 private:
  bool Start(const std::byte* a, const std::byte* b, uint64_t bytes) {
    a_ = a;
    b_ = b;
    bytes_ = bytes;
    return true;
  }
  const std::byte *a_ = nullptr, *b_ = nullptr;
  uint64_t bytes_ = 0;
};

class MergerTest : public ::testing::Test {
 protected:
  // A client's end and the daemon's end of a session.
  class Program {
   public:
    Program(MergerTest& test, uint32_t uid) : test_(test) {
      int sockets[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
      daemon_end_.Reset(sockets[1]);
      transport::DeviceFds fds;
      std::shared_ptr<transport::ServerTransport> server = *transport::ShmServer::Create(fds);
      transport_ = *transport::ShmClient::Create(
          std::make_shared<transport::SessionSocket>(UniqueFd(sockets[0])), std::move(fds),
          transport::kStagingBytes, transport::ShmClient::Waits::kForDevice);
      session::Peer peer;
      peer.tenant = {uid, ""};
      session_ = *test.registry_.Add(std::move(peer), {0}, std::make_shared<handles::HostMemories>(0, false));
      device_session_ =
          *session::DeviceSession::Create(session_, 0, test.state_, server, test.registry_.table_space());
    }
    ~Program() { End(); }
    void End() {
      if (device_session_ == nullptr) return;
      while (!device_session_->End()) test_.device_->Announce();
      device_session_.reset();
    }

    template <typename Command>
    uint64_t Send(const Command& command) {
      std::byte* const space = transport_->Reserve(sizeof(command));
      EXPECT_NE(space, nullptr);
      std::memcpy(space, &command, sizeof(command));
      transport_->Commit(sizeof(command));
      transport_->Publish();
      return ++sequence_;
    }
    template <typename Command>
    static wire::CommandHeader Header(CommandKind kind, uint32_t queue = 0) {
      return wire::Header(kind, queue, sizeof(Command));
    }
    // Has the daemon run what was sent, as far as it can; what was sent to the device is not reported.
    void Run() {
      for (int i = 0; i < 4; ++i) {
        transport_->RequestAnswer(transport::WaitsFor({0, sequence_}));  // else it may not look
        const auto progress = device_session_->Run(kSecond);
        ASSERT_TRUE(progress.ok()) << progress.status();
      }
    }
    // The device has done everything, and says so.
    void Finish() {
      for (int i = 0; i < 3; ++i) {
        Run();
        test_.device_->Announce();
        device_session_->Poll();
      }
    }
    wire::Handle Allocate(uint64_t bytes = kBytes) {
      const wire::Handle handle = {++ids_, 1};
      const uint64_t sequence = Send(wire::ReserveCommand{Header<wire::ReserveCommand>(CommandKind::kReserve),
                                                          charged_ += (bytes + 511) / 512 * 512});
      Run();
      EXPECT_EQ(transport_->AnsweredReserve(), sequence);
      Send(wire::AllocateCommand{Header<wire::AllocateCommand>(CommandKind::kAllocate), handle, bytes});
      Run();
      return handle;
    }
    void SendUpload(wire::Handle handle, int value, uint64_t offset, uint64_t bytes, uint32_t queue = 0) {
      std::memset(transport_->staging().data(), value, bytes);
      Send(wire::UploadCommand{
          Header<wire::UploadCommand>(CommandKind::kUpload, queue), handle, offset, {}, bytes});
    }
    void Upload(wire::Handle handle, int value, uint64_t offset = 0, uint64_t bytes = kBytes) {
      SendUpload(handle, value, offset, bytes);
      Finish();
    }
    // A buffer with these contents.
    wire::Handle Loaded(int value, uint64_t bytes = kBytes) {
      const wire::Handle handle = Allocate(bytes);
      Upload(handle, value, 0, bytes);
      return handle;
    }
    void SendDownload(wire::Handle handle, uint32_t queue = 0) {
      Send(wire::DownloadCommand{
          Header<wire::DownloadCommand>(CommandKind::kDownload, queue), handle, 0, {}, kBytes});
    }
    std::vector<unsigned char> Read(wire::Handle handle) {
      SendDownload(handle);
      Finish();
      return Staged();
    }
    std::vector<unsigned char> Staged() {
      const std::byte* const begin = transport_->staging().data();
      std::vector<unsigned char> bytes(kBytes);
      std::memcpy(bytes.data(), begin, kBytes);
      return bytes;
    }
    bool Has(wire::Handle handle, int value) {
      return std::ranges::all_of(Read(handle), [&](unsigned char byte) { return byte == value; });
    }
    void Copy(wire::Handle source, wire::Handle target) {
      Send(wire::CopyCommand{Header<wire::CopyCommand>(CommandKind::kCopy), source, target, 0, 0, kBytes});
      Finish();
    }
    void Free(wire::Handle handle) {
      Send(wire::FreeCommand{Header<wire::FreeCommand>(CommandKind::kFree), handle});
      Finish();
    }
    void CreateQueue(uint32_t queue) {
      Send(
          wire::CreateQueueCommand{Header<wire::CreateQueueCommand>(CommandKind::kCreateQueue, queue), 0, 0});
      Finish();
    }
    uint64_t Completed(uint32_t queue) const { return transport_->Completed(queue); }
    // Of queue 0.
    absl::Status Error() const {
      return transport_->Errors(0) == 0 ? absl::OkStatus() : transport_->LastError(0);
    }
    void ClearError() {
      Send(wire::ClearErrorCommand{Header<wire::ClearErrorCommand>(CommandKind::kClearError),
                                   transport_->Errors(0), 0});
      Finish();
    }
    uint64_t Stamp(uint32_t slot) const { return transport_->Timestamp(slot); }
    session::DeviceSession& session() { return *device_session_; }
    uint64_t sequence() const { return sequence_; }

   private:
    MergerTest& test_;
    UniqueFd daemon_end_;
    std::unique_ptr<transport::ShmClient> transport_;
    std::shared_ptr<session::Session> session_;
    std::unique_ptr<session::DeviceSession> device_session_;
    uint64_t sequence_ = 0, charged_ = 0;
    uint32_t ids_ = 0;
  };

  void SetUp() override { Make(256 * kMiB); }
  void Make(uint64_t device_bytes, memory::Residency::Options moves = {}) {
    auto device = std::make_unique<MemoryDevice>(/*asynchronous=*/true, device_bytes);
    device_ = device.get();
    state_.Use(std::move(device), 0, std::move(moves));
    auto comparer = std::make_unique<TestComparer>();
    comparer_ = comparer.get();
    state_.merger = std::make_unique<stream::Merger>(
        *state_.pool, std::move(comparer),
        [this](const absl::Status& trouble, bool goes_on) {
          trouble_ = trouble;
          goes_on_ = goes_on;
        },
        /*max_known=*/20);
  }
  // The lane goes on for so long, in steps of 0.1 ms.
  void Pass(uint64_t milliseconds = 20) {
    for (uint64_t i = 0; i < 10 * milliseconds; ++i) Step(kMillisecond / 10);
  }
  void Step(uint64_t ns) {
    now_ns_ += ns;
    state_.merger->Poll(now_ns_, state_.last_content, [this] { return may_start_; });
  }
  memory::TenantMemory Memory(uint32_t uid = 7) {
    const memory::DeviceMemory usage = state_.pool->Usage();
    const auto found = usage.tenants.find(Tenant{uid, ""});
    return found == usage.tenants.end() ? memory::TenantMemory() : found->second;
  }
  // Bytes of blocks, where equal ones count once.
  uint64_t Used() { return state_.pool->used_bytes(); }

  session::Registry registry_;
  stream::DeviceState state_;
  MemoryDevice* device_;
  TestComparer* comparer_;
  bool may_start_ = true;
  absl::Status trouble_;
  bool goes_on_ = true;
  uint64_t now_ns_ = kSecond;
};

TEST_F(MergerTest, EqualUploadsAreThereOnceAndFreedInAnyOrder) {
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}) {
    Program a(*this, 7), b(*this, 7), c(*this, 7);
    Program* const programs[] = {&a, &b, &c};
    wire::Handle loaded[3];
    for (size_t i = 0; i < 3; ++i) loaded[i] = programs[i]->Loaded(5);
    EXPECT_EQ(Used(), 3 * kBytes);
    Pass();
    EXPECT_EQ(Used(), kBytes);
    EXPECT_EQ(Memory().saved, 2 * kBytes);
    EXPECT_EQ(Memory().holds, 3 * kBytes) << "all are charged";
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(programs[i]->session().allocated_bytes(), kBytes);
      EXPECT_EQ(programs[i]->session().account().held(), kBytes);
    }
    for (size_t freed = 0; freed < 3; ++freed) {
      for (size_t i = freed; i < 3; ++i) EXPECT_TRUE(programs[order[i]]->Has(loaded[order[i]], 5));
      programs[order[freed]]->Free(loaded[order[freed]]);
      EXPECT_EQ(programs[order[freed]]->session().account().held(), 0u);
      EXPECT_EQ(Used(), freed < 2 ? kBytes : 0);
    }
    EXPECT_EQ(Memory().saved, 0u);
  }
}

TEST_F(MergerTest, WhatIsWrittenIsCopiedOnceAndTheOthersKeepTheirs) {
  Program a(*this, 7), b(*this, 7), c(*this, 7);
  const wire::Handle of_a = a.Loaded(5), of_b = b.Loaded(5), of_c = c.Loaded(5);
  Pass();
  ASSERT_EQ(Used(), kBytes);
  b.Upload(of_b, 9, 100, 1000);
  EXPECT_EQ(Used(), 2 * kBytes);
  EXPECT_EQ(Memory().saved, kBytes);
  EXPECT_EQ(Memory().copied_at_write, kBytes);
  const std::vector<unsigned char> written = b.Read(of_b);
  for (uint64_t at = 0; at < kBytes; ++at) ASSERT_EQ(written[at], at >= 100 && at < 1100 ? 9 : 5) << at;
  EXPECT_TRUE(a.Has(of_a, 5));
  EXPECT_TRUE(c.Has(of_c, 5));
  b.Upload(of_b, 8, 0, 10);
  EXPECT_EQ(Memory().copied_at_write, kBytes) << "it is its own now";
  a.Upload(of_a, 6, 0, 10);
  EXPECT_EQ(Memory().copied_at_write, 2 * kBytes);
  c.Upload(of_c, 7, 0, 10);
  EXPECT_EQ(Memory().copied_at_write, 2 * kBytes) << "nobody else has it";
  EXPECT_EQ(Memory().saved, 0u);
  EXPECT_EQ(Used(), 3 * kBytes);
  EXPECT_EQ(a.Read(of_a)[10], 5);
  EXPECT_EQ(c.Read(of_c)[9], 7);
  EXPECT_EQ(b.session().account().held(), kBytes);
  for (Program* const program : {&a, &b, &c}) program->End();
  EXPECT_EQ(state_.pool->Usage().ended.at(Tenant{7, ""}.Text()).copied_at_write, 2 * kBytes);
  Program d(*this, 7);
  EXPECT_EQ(Memory().copied_at_write, 2 * kBytes) << "since the daemon started";
}

TEST_F(MergerTest, WhatIsWrittenAsAWholeIsNotCopied) {
  Program a(*this, 7), b(*this, 7);
  const wire::Handle of_a = a.Loaded(5), of_b = b.Loaded(5);
  Pass();
  ASSERT_EQ(Used(), kBytes);
  b.Upload(of_b, 6);
  EXPECT_EQ(Memory().copied_at_write, 0u);
  EXPECT_TRUE(a.Has(of_a, 5));
  EXPECT_TRUE(b.Has(of_b, 6));
  b.Upload(of_b, 5);
  Pass();
  EXPECT_EQ(Used(), kBytes) << "equal again";
}

TEST_F(MergerTest, CopiesBetweenMergedBuffersReadAndWriteTheRightOnes) {
  Program a(*this, 7), b(*this, 7);
  const wire::Handle of_a = a.Loaded(5), of_b = b.Loaded(5), other = b.Loaded(6);
  Pass();
  ASSERT_EQ(Memory().saved, kBytes);
  b.Send(
      wire::CopyCommand{Program::Header<wire::CopyCommand>(CommandKind::kCopy), of_b, of_b, 0, kMiB, 1000});
  b.Send(wire::CopyCommand{Program::Header<wire::CopyCommand>(CommandKind::kCopy), other, of_b, 0, 0, 1000});
  b.Finish();
  EXPECT_EQ(b.Read(of_b)[0], 6);
  EXPECT_EQ(b.Read(of_b)[kMiB], 5);
  EXPECT_TRUE(a.Has(of_a, 5));
  EXPECT_EQ(Memory().copied_at_write, kBytes) << "once";
}

TEST_F(MergerTest, TenantsAndSizesAreNotMixed) {
  Program a(*this, 7), b(*this, 8), c(*this, 7);
  a.Loaded(5);
  b.Loaded(5);
  c.Loaded(5, kBytes + 4096);
  c.Loaded(5, kMiB - 512);
  c.Loaded(5, kMiB - 512);
  Pass();
  EXPECT_EQ(comparer_->comparisons, 0);
  EXPECT_EQ(Memory(7).saved, 0u);
  EXPECT_EQ(Memory(8).saved, 0u);
}

TEST_F(MergerTest, AWriteWhileTheDeviceLooksDropsTheResult) {
  for (const bool while_compared : {false, true}) {
    for (const bool is_first : {false, true}) {
      Program a(*this, 7), b(*this, 7);
      const wire::Handle of_a = a.Loaded(5);
      Pass();
      const wire::Handle of_b = b.Loaded(5);
      if (while_compared) {
        const int before = comparer_->comparisons;
        while (comparer_->comparisons == before) Step(kMillisecond / 10);
      } else {
        Step(kMillisecond / 10);
      }
      ASSERT_TRUE(state_.merger->is_under_way());
      comparer_->holds = true;
      (is_first ? a : b).Upload(is_first ? of_a : of_b, 9, kBytes - 100, 50);
      comparer_->holds = false;
      Pass();
      EXPECT_EQ(Memory().saved, 0u) << while_compared << is_first;
      EXPECT_EQ(a.Read(of_a)[kBytes - 100], is_first ? 9 : 5);
      EXPECT_EQ(b.Read(of_b)[kBytes - 100], is_first ? 5 : 9);
    }
  }
}

TEST_F(MergerTest, EqualDigestsOfOtherContentsCostAFewComparisonsOnly) {
  Program a(*this, 7);
  comparer_->collides = true;
  for (int i = 0; i < 19; ++i) a.Loaded(i);
  Pass(200);
  EXPECT_EQ(Memory().saved, 0u);
  EXPECT_EQ(comparer_->digests, 19 * 2);
  EXPECT_LE(comparer_->comparisons, 19 * stream::Merger::kMaxComparisons) << "one piece each shows it";
  EXPECT_GT(comparer_->comparisons, 19);
  Program b(*this, 7);
  const wire::Handle equal = b.Loaded(0);
  Pass();
  EXPECT_EQ(Memory().saved, kBytes) << "of the first one";
  EXPECT_TRUE(b.Has(equal, 0));
}

TEST_F(MergerTest, MemoryStaysWhileTheDeviceReadsItWhateverEnds) {
  for (const bool frees : {true, false}) {
    auto a = std::make_unique<Program>(*this, 7);
    const wire::Handle of_a = a->Loaded(5);
    Step(kMillisecond / 10);
    ASSERT_TRUE(state_.merger->is_under_way());
    comparer_->holds = true;
    if (frees) {
      a->Free(of_a);
      a->Allocate();  // does not get it
    }
    a.reset();
    EXPECT_EQ(Used(), kBytes);
    EXPECT_GT(state_.pool->chunk_bytes(), 0u);
    comparer_->holds = false;
    Pass(1);
    EXPECT_EQ(Used(), 0u);
    EXPECT_EQ(state_.pool->chunk_bytes(), 0u) << "nor is the tenant there any more";
  }
}

TEST_F(MergerTest, SessionsThatEndLeaveTheMemoryToTheOthers) {
  auto a = std::make_unique<Program>(*this, 7), b = std::make_unique<Program>(*this, 7);
  a->Loaded(5);
  const wire::Handle of_b = b->Loaded(5);
  Pass();
  a.reset();
  EXPECT_EQ(Used(), kBytes);
  EXPECT_EQ(Memory().saved, 0u);
  Program c(*this, 7);
  const wire::Handle of_c = c.Loaded(5);
  Pass();
  EXPECT_EQ(Memory().saved, kBytes) << "with the one that is left";
  EXPECT_TRUE(b->Has(of_b, 5));
  b.reset();
  EXPECT_TRUE(c.Has(of_c, 5));
  c.Upload(of_c, 6, 0, 10);
  EXPECT_EQ(Used(), kBytes) << "nothing was copied";
}

TEST_F(MergerTest, AQueueGetsNoMergedMemoryThatItHasFreed) {
  Program a(*this, 7), b(*this, 7);
  const wire::Handle of_a = a.Loaded(5), of_b = b.Loaded(5);
  Pass();
  b.SendDownload(of_b);
  b.Send(wire::FreeCommand{Program::Header<wire::FreeCommand>(CommandKind::kFree), of_b});
  b.Run();
  const wire::Handle next = b.Allocate();  // before the device has reported
  b.SendUpload(next, 6, 0, kBytes);
  b.Finish();
  EXPECT_TRUE(a.Has(of_a, 5));
  EXPECT_TRUE(b.Has(next, 6));
}

TEST_F(MergerTest, TheFormerBlockStaysUntilCommandsInFlightHaveReadIt) {
  Program a(*this, 7), b(*this, 7);
  a.Loaded(5);
  const wire::Handle of_b = b.Loaded(5);
  b.SendDownload(of_b);
  b.Run();
  Pass();
  EXPECT_EQ(Memory().saved, kBytes);
  EXPECT_EQ(Used(), 2 * kBytes);
  EXPECT_TRUE(b.Has(of_b, 5));
  EXPECT_EQ(Used(), kBytes);
}

TEST_F(MergerTest, OtherQueuesUseABufferOnceItsCopyHasEnded) {
  Program a(*this, 7), b(*this, 7);
  a.Loaded(5);
  const wire::Handle of_b = b.Loaded(5);
  b.CreateQueue(1);
  Pass();
  ASSERT_EQ(Memory().saved, kBytes);
  b.SendUpload(of_b, 9, 0, 10, /*queue=*/0);
  b.SendDownload(of_b, /*queue=*/1);
  b.Run();
  EXPECT_EQ(b.session().counters().commands_submitted, b.sequence() - 1) << "the other queue waits";
  device_->Announce();
  b.Run();
  EXPECT_EQ(b.session().counters().commands_submitted, b.sequence());
}

TEST_F(MergerTest, WhatNobodyWroteForTenSecondsIsMergedToo) {
  Program a(*this, 7), b(*this, 7);
  const wire::Handle of_a = a.Loaded(5);
  Pass();
  const wire::Handle of_b = b.Allocate(), source = b.Loaded(5, kBytes);
  Pass();
  ASSERT_EQ(Memory().saved, kBytes);
  b.Upload(source, 4, 0, 8);
  b.Upload(source, 5, 0, 8);  // no upload that is complete
  b.Copy(source, of_b);
  Pass(9000);
  EXPECT_EQ(Memory().saved, 0u);
  Pass(3000);
  EXPECT_EQ(Memory().saved, 2 * kBytes);
  EXPECT_TRUE(a.Has(of_a, 5));
  EXPECT_TRUE(b.Has(of_b, 5));
  EXPECT_TRUE(b.Has(source, 5));
  const int digests = comparer_->digests;
  Pass(30000);
  EXPECT_EQ(comparer_->digests, digests) << "nothing was written since";
  EXPECT_EQ(state_.merger->due_ns(now_ns_), UINT64_MAX) << "the lane may sleep";
}

TEST_F(MergerTest, TakesAHundredthOfTheTime) {
  Program a(*this, 7);
  comparer_->took_ns = kMillisecond;
  Step(1);
  for (int i = 0; i < 40; ++i) a.Loaded(i);
  Pass(10'000);
  EXPECT_GE(comparer_->digests, 80) << "it had saved some";
  const int all_digests = std::exchange(comparer_->digests, 0);
  for (int i = 0; i < 80; ++i) a.Loaded(i + 40);
  Pass(12);
  const int at_once = comparer_->digests;
  EXPECT_GE(at_once, 99);
  EXPECT_LE(at_once, 101);
  Pass(1000);
  EXPECT_GE(comparer_->digests, at_once + 8);
  EXPECT_LE(comparer_->digests, at_once + 11);
  memory::DeviceMemory usage;
  state_.merger->AddTo(usage);
  const auto pieces = static_cast<uint64_t>(all_digests) + static_cast<uint64_t>(comparer_->digests);
  EXPECT_EQ(usage.merging_ns, pieces * kMillisecond);
  EXPECT_EQ(usage.merging_bytes, pieces * kMiB);
}

TEST_F(MergerTest, KnowsOnlySoManyBuffers) {
  Program a(*this, 7);
  std::vector<wire::Handle> loaded;
  for (int i = 0; i < 30; ++i) loaded.push_back(a.Loaded(i));
  Pass();
  a.Loaded(19);
  Pass();
  EXPECT_EQ(Memory().saved, kBytes);
  a.Loaded(25);
  Pass();
  EXPECT_EQ(Memory().saved, kBytes) << "it is not known";
  for (int i = 0; i < 10; ++i) a.Free(loaded[static_cast<size_t>(i)]);
  a.Loaded(50);
  a.Loaded(50);
  Pass();
  EXPECT_EQ(Memory().saved, 2 * kBytes) << "what is gone makes room";
}

TEST_F(MergerTest, ItRestsAfterALossAndEndsAfterSome) {
  for (int loss = 1; loss <= stream::Merger::kMaxLosses; ++loss) {
    Program a(*this, 7);
    const wire::Handle of_a = a.Loaded(5);
    Step(kMillisecond / 10);
    ASSERT_TRUE(state_.merger->is_under_way());
    comparer_->failure = absl::InternalError("lost");
    Pass();
    EXPECT_EQ(trouble_.message(), "lost");
    EXPECT_FALSE(state_.merger->is_under_way());
    a.Free(of_a);
    EXPECT_EQ(Used(), 0u) << "nothing is pinned";
    EXPECT_EQ(goes_on_, loss < stream::Merger::kMaxLosses);
    a.Loaded(6);
    Pass();
    EXPECT_FALSE(state_.merger->is_under_way()) << "it rests";
    EXPECT_GT(state_.merger->due_ns(now_ns_), now_ns_ + kSecond) << "the lane may sleep meanwhile";
    now_ns_ += stream::Merger::kRestNs;
  }
  Program a(*this, 7);
  a.Loaded(5);
  Pass();
  EXPECT_FALSE(state_.merger->is_under_way());
  EXPECT_EQ(state_.merger->due_ns(now_ns_), UINT64_MAX);
  trouble_ = absl::OkStatus();
  state_.merger->Abandon(absl::UnavailableError("lost"));
  EXPECT_TRUE(trouble_.ok()) << "it was said";
}

TEST_F(MergerTest, LossesInARowCount) {
  for (int loss = 0; loss < 2 * stream::Merger::kMaxLosses; ++loss) {
    Program a(*this, 7), b(*this, 7);
    a.Loaded(5);
    Step(kMillisecond / 10);
    ASSERT_TRUE(state_.merger->is_under_way());
    comparer_->failure = absl::InternalError("lost");
    Pass();
    ASSERT_TRUE(goes_on_);
    now_ns_ += stream::Merger::kRestNs;
    b.Loaded(7);
    a.Loaded(7);
    Pass();
    EXPECT_EQ(Memory().saved, kBytes) << "it goes on";
  }
}

TEST_F(MergerTest, ADeviceThatWasLostLeavesNothingPinned) {
  Program a(*this, 7);
  const wire::Handle of_a = a.Loaded(5);
  Step(kMillisecond / 10);
  ASSERT_TRUE(state_.merger->is_under_way());
  comparer_->holds = true;  // it never says more
  a.Free(of_a);
  uint64_t until_the_end = 0;
  comparer_->on_reset = [&] { until_the_end = Used(); };
  state_.merger->Abandon(absl::UnavailableError("lost"));
  comparer_->on_reset = nullptr;
  EXPECT_EQ(until_the_end, kBytes) << "the device may still read it";
  EXPECT_EQ(trouble_.message(), "lost");
  EXPECT_EQ(Used(), 0u);
  EXPECT_FALSE(state_.merger->is_under_way());
}

TEST_F(MergerTest, WhatIsOnlyToBeLookedAtIsFreedAtOnce) {
  for (const bool frees : {true, false}) {
    Program a(*this, 7);
    const wire::Handle of_a = a.Loaded(5);
    may_start_ = false;
    Pass(2);
    if (frees)
      a.Free(of_a);
    else
      a.End();
    EXPECT_EQ(Used(), 0u);
    Step(kMillisecond / 10);
    a.End();
    EXPECT_EQ(state_.pool->chunk_bytes(), 0u) << "nor is the tenant there any more";
    may_start_ = true;
    Pass();
    EXPECT_EQ(comparer_->digests, 0);
  }
}

TEST_F(MergerTest, StartsNothingWhileOthersNeedTheDevice) {
  Program a(*this, 7), b(*this, 7);
  a.Loaded(5);
  b.Loaded(5);
  may_start_ = false;
  Pass();
  EXPECT_EQ(comparer_->digests, 0);
  EXPECT_GT(state_.merger->due_ns(now_ns_), now_ns_ + 50 * kMillisecond) << "the lane may sleep meanwhile";
  may_start_ = true;
  Pass();
  EXPECT_EQ(Memory().saved, kBytes);
}

TEST_F(MergerTest, SharedMemoryIsOfASessionsOwnBlock) {
  Program a(*this, 7), b(*this, 7);
  const wire::Handle of_a = a.Loaded(5), of_b = b.Loaded(5);
  Pass();
  ASSERT_EQ(Memory().saved, kBytes);
  wire::ShareCommand share{Program::Header<wire::ShareCommand>(CommandKind::kShare), of_b, {}};
  for (uint32_t i = 0; i < wire::kAnswerSlots; ++i) share.slots[i] = i;
  const uint64_t sequence = b.Send(share);
  b.Run();
  EXPECT_EQ(b.Stamp(0), wire::AnswerOf(sequence, wire::Answer::kDone));
  wire::AttachCommand attach{
      Program::Header<wire::AttachCommand>(CommandKind::kAttach), {1, 1}, {b.Stamp(1), b.Stamp(2)}, {}};
  for (uint32_t i = 0; i < wire::kAnswerSlots; ++i) attach.slots[i] = i;
  Program c(*this, 7);
  c.Send(attach);
  c.Run();
  EXPECT_EQ(c.session().counters().commands_submitted, 0u) << "it waits for the copy";
  b.Finish();
  c.Run();
  EXPECT_EQ(c.session().counters().commands_submitted, 1u);
  EXPECT_EQ(Memory().saved, 0u);
  c.Upload({1, 1}, 9, 0, 10);
  EXPECT_EQ(b.Read(of_b)[9], 9);
  EXPECT_EQ(b.Read(of_b)[10], 5);
  EXPECT_TRUE(a.Has(of_a, 5));
}

class MergerOnASmallDeviceTest : public MergerTest {
 protected:
  void SetUp() override { Make(32 * kMiB); }
};

TEST_F(MergerOnASmallDeviceTest, WithoutRoomForTheCopyTheWriteIsSkippedAndTheContentsStay) {
  Program a(*this, 7), b(*this, 7);
  const wire::Handle of_a = a.Loaded(5), of_b = b.Loaded(5);
  Pass(2000);
  ASSERT_EQ(Memory().saved, kBytes);
  // Another tenant takes all that is left.
  Program other(*this, 8);
  std::vector<wire::Handle> taken;
  const uint64_t room = state_.device->properties().total_memory - state_.pool->chunk_bytes();
  for (uint64_t bytes = 0; bytes + 2 * kMiB <= room && bytes < 12 * kMiB; bytes += 2 * kMiB)
    taken.push_back(other.Loaded(static_cast<int>(bytes / kMiB)));
  std::vector<wire::Handle> own;
  while (state_.pool->ledger().unused() + state_.pool->used_bytes() + kBytes <= 32 * kMiB && a.Error().ok() &&
         own.size() < 16)
    own.push_back(a.Loaded(100 + static_cast<int>(own.size())));
  b.SendUpload(of_b, 9, 0, 10);
  b.Finish();
  ASSERT_FALSE(b.Error().ok());
  EXPECT_THAT(std::string(b.Error().message()), HasSubstr("out of memory"));
  b.ClearError();
  EXPECT_TRUE(b.Has(of_b, 5));
  EXPECT_TRUE(a.Has(of_a, 5));
  for (const wire::Handle handle : own) a.Free(handle);
  b.Upload(of_b, 9, 0, 10);
  EXPECT_EQ(b.Read(of_b)[0], 9);
  EXPECT_EQ(b.Read(of_b)[10], 5);
}

// Two tenants of which only one has its memory on the device at a time.
class MergerBeyondTheDeviceTest : public MergerTest {
 protected:
  void SetUp() override { Make(64 * kMiB, {.host_limit = 1024 * kMiB}); }
  // Moves end, and what the host does in the background.
  void Move(uint64_t milliseconds) {
    for (uint64_t i = 0; i < 10 * milliseconds; ++i) {
      Step(kMillisecond / 10);
      device_->Poll();
      state_.pool->residency().Poll(now_ns_);
      if (state_.pool->residency().store().is_busy())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Has the session run all that was sent, which may wait for memory.
  void Await(Program& program) {
    for (int i = 0; i < 20'000; ++i) {
      program.Finish();
      if (program.session().counters().commands_submitted == program.sequence()) return;
      Move(1);
    }
    FAIL() << "it waits for ever";
  }
};

TEST_F(MergerBeyondTheDeviceTest, MergedMemoryLeavesAndReturnsAndIsCopied) {
  Program a(*this, 7), b(*this, 7), other(*this, 8);
  std::vector<wire::Handle> of_a, of_b, of_other;
  for (int i = 0; i < 6; ++i) {
    of_a.push_back(a.Loaded(i));
    of_b.push_back(b.Loaded(i));
  }
  Pass();
  ASSERT_EQ(Memory(7).saved, 6 * kBytes);
  Pass(2000);
  // The other tenant fills the device, and the first one's memory leaves.
  for (int i = 0; i < 28; ++i) {
    of_other.push_back(other.Allocate());
    other.SendUpload(of_other.back(), 100 + i, 0, kBytes);
    Await(other);
  }
  Move(500);
  ASSERT_GT(Memory(7).moved_out, 0u);
  // Written while it is away: it comes, is copied, and both copies are right.
  for (size_t i = 0; i < 6; ++i) {
    b.SendUpload(of_b[i], 50, 10, 10);
    Await(b);
    ASSERT_TRUE(b.Error().ok()) << b.Error();
  }
  EXPECT_EQ(Memory(7).copied_at_write, 6 * kBytes);
  const auto expect_right = [&](Program& program, wire::Handle handle, int value, bool written) {
    program.SendDownload(handle);
    Await(program);
    const std::vector<unsigned char> bytes = program.Staged();
    for (uint64_t at = 0; at < kBytes; ++at)
      ASSERT_EQ(bytes[at], written && at >= 10 && at < 20 ? 50 : value) << at;
  };
  for (size_t i = 0; i < 6; ++i) {
    expect_right(b, of_b[i], static_cast<int>(i), true);
    expect_right(a, of_a[i], static_cast<int>(i), false);
  }
  for (size_t i = 0; i < of_other.size(); ++i)
    expect_right(other, of_other[i], 100 + static_cast<int>(i), false);
}

TEST_F(MergerTest, MemoryGoesBackToTheDeviceOnceNothingMoreIsMerged) {
  std::vector<std::unique_ptr<Program>> programs;
  for (int p = 0; p < 6; ++p) {
    programs.push_back(std::make_unique<Program>(*this, 7));
    for (int i = 0; i < 16; ++i) programs.back()->Loaded(i);
    Pass(100);
  }
  EXPECT_EQ(Used(), 16 * kBytes);
  Pass(2000);
  EXPECT_EQ(Memory().saved, 5 * 16 * kBytes);
  EXPECT_LE(state_.pool->chunk_bytes(), 16 * kBytes + 6 * 8 * kMiB);
}

}  // namespace
}  // namespace xpud::lane
