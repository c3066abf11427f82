#include "daemon/scheduler/engine.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "proto/transport/shm_client.h"
#include "proto/transport/shm_server.h"
#include "proto/wire/encode.h"

namespace xpud::scheduler {
namespace {

// A client of an engine without devices: every command is a breach, which is what these tests need of one.
struct Client {
  Client(Engine& engine, uint64_t id) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    daemon_end.Reset(sockets[1]);
    transport::SessionFds fds;
    auto server = *transport::ShmServer::Create(fds);
    doorbell.Reset(dup(fds.doorbell.get()));
    transport = *transport::ShmClient::Create(UniqueFd(sockets[0]), std::move(fds), transport::kStagingBytes,
                                              transport::ShmClient::Waits::kForDaemon);
    static auto* const tables = new session::TableSpace;
    engine.Call([&] {
      engine.AddSession(std::make_unique<session::Session>(id, session::Peer{}, std::move(server),
                                                           std::span<session::DeviceState>(), 0, *tables));
    });
  }
  void SendNop() {
    const wire::NopCommand nop = {wire::Header(wire::CommandKind::kNop, 0, sizeof(nop))};
    std::memcpy(transport->Reserve(sizeof(nop)), &nop, sizeof(nop));
    transport->Commit(sizeof(nop));
    transport->Publish();
  }
  bool IsClosed() const {
    for (int i = 0; i < 2000 && transport->status().ok(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !transport->status().ok();
  }
  UniqueFd daemon_end, doorbell;
  std::unique_ptr<transport::ShmClient> transport;
};

TEST(Engine, TasksOfManyThreadsAllRunOnOneThread) {
  auto engine = *Engine::Create({}, {});
  int count = 0;  // no lock: only the engine's thread touches it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        if (i % 2 == 0) {
          engine->Call([&] { ++count; });
        } else {
          engine->Post([&] { ++count; });
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int seen = 0;
  engine->Call([&] { seen = count; });
  EXPECT_EQ(seen, 2000);
}

TEST(Engine, ASleepingEngineWakesForACommandAndClosesOnlyTheSessionThatBreaches) {
  std::atomic<uint64_t> breached{0};
  Engine::Options options;
  options.on_breach = [&](uint64_t id) { breached.store(id); };
  auto engine = *Engine::Create({}, options);
  Client good(*engine, 1), bad(*engine, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // asleep by now
  bad.SendNop();
  EXPECT_TRUE(bad.IsClosed());
  EXPECT_TRUE(good.transport->status().ok());
  size_t sessions = 0;
  engine->Call([&] { sessions = engine->sessions().size(); });  // after all that belongs to the closing
  EXPECT_EQ(sessions, 1u);
  EXPECT_EQ(breached.load(), 2u);
}

TEST(Engine, ItsEndClosesEverySession) {
  auto engine = *Engine::Create({}, {});
  Client client(*engine, 1);
  engine.reset();
  EXPECT_TRUE(client.IsClosed());
}

uint64_t CpuMicroseconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 +
         static_cast<uint64_t>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(Engine, AClientWhoseSessionIsClosedCannotKeepItAwake) {
  auto engine = *Engine::Create({}, {});
  Client client(*engine, 1);
  client.SendNop();
  ASSERT_TRUE(client.IsClosed());
  eventfd_write(client.doorbell.get(), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const uint64_t before = CpuMicroseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(CpuMicroseconds() - before, 150'000u);
}

}  // namespace
}  // namespace xpud::scheduler
