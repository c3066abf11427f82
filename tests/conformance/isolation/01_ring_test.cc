// A ring that is rewritten while the daemon decodes it. The daemon must execute the bytes that it has
// checked, whatever the ring contains a moment later.
#include <random>
#include <thread>

#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Ring = Isolation;

constexpr size_t kSlot = 64;  // each command has this size, so that it keeps its place when the ring wraps
constexpr size_t kSlots = transport::kRingBytes / kSlot;
constexpr size_t kBatch = 512;  // the daemon takes this many at a time
constexpr wire::Handle kTarget = {1, 1};
constexpr uint32_t kBuffers = 64;  // of the same size, so that they are neighbours
constexpr uint64_t kBytes = 64;
constexpr uint64_t kNothing =
    0xffffff01;  // nor is any of its beginnings an id: bytes change one after another

// A field of a command, and two values of it, both well-formed: the command either works or is an error of
// its queue.
struct Flip {
  size_t at, bytes;
  uint64_t right, wrong;
};

std::vector<std::byte> InlineUpload() {
  return UploadInline(kTarget, 0, std::vector<std::byte>(32, std::byte{0x11}));
}
std::vector<Flip> FlipsOfUpload() {
  using C = wire::UploadInlineCommand;
  return {{offsetof(C, header) + offsetof(wire::CommandHeader, queue), 2, 0, 1},
          {offsetof(C, buffer), 4, kTarget.id, kNothing},
          {offsetof(C, buffer) + 4, 4, kTarget.generation, kNothing},
          {offsetof(C, offset), 8, 0, kBytes},             // a neighbour
          {offsetof(C, offset), 8, 0, uint64_t{1} << 40},  // nobody's
          {offsetof(C, bytes), 4, 32, 25},
          {sizeof(C), 8, 0x1111111111111111, ~uint64_t{0}}};
}

// Of one dimension each, in the narrow form: 24 bytes an operand.
std::vector<std::byte> Negation() {
  struct Narrow {
    wire::OperandHeader header;
    uint32_t generation, offset, size, padding;
  };
  struct {
    wire::ExecuteCommand command;
    Narrow out, in;
  } bytes = {};
  static_assert(sizeof(bytes) == kSlot);
  const auto type = static_cast<uint8_t>(ops::DType::kFloat32);
  bytes.command = {
      wire::Header(wire::CommandKind::kExecute, 0, sizeof(bytes)), ops::RowOf("neg").number, type, 0, 1, 1};
  bytes.out = bytes.in = {{wire::OperandKind::kTensor, type, 1, 0, kTarget.id}, kTarget.generation, 0, 8, 0};
  const auto raw = std::as_bytes(std::span(&bytes, 1));
  return {raw.begin(), raw.end()};
}
std::vector<Flip> FlipsOfNegation() {
  constexpr size_t kOut = sizeof(wire::ExecuteCommand), kIn = kOut + 24;
  std::vector<Flip> flips = {
      {offsetof(wire::ExecuteCommand, row), 2, ops::RowOf("neg").number, ops::RowOf("sqrt").number}};
  for (const size_t operand : {kOut, kIn}) {
    flips.push_back({operand + offsetof(wire::OperandHeader, dtype), 1, 8, 5});
    flips.push_back({operand + offsetof(wire::OperandHeader, buffer), 4, kTarget.id, kNothing});
    flips.push_back({operand + 8, 4, kTarget.generation, kNothing});
    flips.push_back({operand + 12, 4, 0, kBytes / 4});
    flips.push_back({operand + 12, 4, 0, 1u << 31});
    flips.push_back({operand + 16, 4, 8, 1u << 31});
    flips.push_back({operand + 16, 4, 8, 17});
  }
  return flips;
}

void Store(std::byte* at, size_t bytes, uint64_t value) {
  for (size_t i = 0; i < bytes; ++i)
    std::atomic_ref(reinterpret_cast<unsigned char&>(at[i]))
        .store(static_cast<unsigned char>(value >> (8 * i)), std::memory_order_relaxed);
}

// Two buffers' worth of commands in turn in every slot; kTarget and its neighbours, which hold zeros.
void Prepare(HostileSession& session) {
  for (uint32_t id = 1; id <= kBuffers; ++id) {
    session.Put(Allocate({id, 1}, kBytes));
    session.Put(UploadInline({id, 1}, 0, std::vector<std::byte>(kBytes)));
  }
  session.Put(CreateQueue(1));
  session.Put(Nop());
  ASSERT_TRUE(session.Settle().ok());
  while (session.tail() % transport::kRingBytes != 0) session.Put(Nop());
  ASSERT_TRUE(session.Settle().ok());
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const auto command = slot % 2 == 0 ? InlineUpload() : Negation();
    ASSERT_EQ(command.size(), kSlot);
    std::memcpy(session.ring().data() + slot * kSlot, command.data(), kSlot);
  }
}

// Changes fields of commands that the daemon is about to read, or has just read, to the other value and back,
// until `stop`; then all are correct.
void KeepFlipping(const HostileSession& session, const std::atomic<bool>& stop) {
  const std::span<std::byte> ring = session.ring();
  const std::vector<Flip> flips[] = {FlipsOfUpload(), FlipsOfNegation()};
  std::minstd_rand random(1);
  while (!stop.load(std::memory_order_relaxed)) {
    const size_t head = session.completion().head.load(std::memory_order_relaxed) / kSlot;
    const size_t slot = (head + kSlots - kBatch + random() % (2 * kBatch)) % kSlots;
    const auto& of_slot = flips[slot % 2];
    const Flip& flip = of_slot[random() % of_slot.size()];
    std::byte* const at = ring.data() + slot * kSlot + flip.at;
    Store(at, flip.bytes, flip.wrong);
    if (random() % 4 != 0) Store(at, flip.bytes, flip.right);
  }
  for (size_t slot = 0; slot < kSlots; ++slot) {
    for (const Flip& flip : flips[slot % 2])
      Store(ring.data() + slot * kSlot + flip.at, flip.bytes, flip.right);
  }
}

TEST_F(Ring, RewrittenUnderTenMillionCommandsIsReadOnce) {
  constexpr uint64_t kCommands = 10'000'000;
  auto session = std::make_unique<HostileSession>(socket());
  Prepare(*session);
  std::atomic<bool> stop{false};
  std::thread flipper([&] { KeepFlipping(*session, stop); });
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t first = session->tail(), end = first + kCommands * kSlot;
  uint64_t tail = first;
  while (tail < end && !session->gone()) {
    const uint64_t head = session->completion().head.load(std::memory_order_acquire);
    if (head + transport::kRingBytes - tail < transport::kRingBytes / 8 && tail - head != 0) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - begin > seconds(200)) break;
      continue;
    }
    tail = std::min(end, head + transport::kRingBytes);
    session->PublishUpTo(tail);
  }
  const auto took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  EXPECT_TRUE(e2e::Within(seconds(10), [&] {
    return session->gone() || session->completion().head.load(std::memory_order_acquire) == end;
  }));
  stop = true;
  flipper.join();
  ASSERT_FALSE(session->gone()) << transport::GetText(session->completion().reason);
  EXPECT_EQ(tail, end);
  EXPECT_GT(session->completion().queues[0].errors.load(), 0u) << "no command was seen as another";
  EXPECT_GT(session->completion().queues[1].errors.load(), 0u);
  std::printf("[ figures  ] %llu commands in %lld ms\n", static_cast<unsigned long long>(kCommands),
              static_cast<long long>(took.count()));

  session->SkipTo(end);
  session->Put(ClearError(session->completion().queues[0].errors.load()));
  for (uint32_t id = 2; id <= kBuffers; ++id) {
    std::fill_n(session->staging().data() + id * kBytes, kBytes, std::byte{0xff});
    session->Put(Download({id, 1}, 0, {id * kBytes, 0, 0}, kBytes));
  }
  session->Publish();
  ASSERT_TRUE(e2e::Within(seconds(20), [&] { return session->completion().head.load() == session->tail(); }));
  innocent_.ExpectUnharmed();  // and what was taken from the ring has been done
  for (size_t i = 2 * kBytes; i < (kBuffers + 1) * kBytes; ++i)
    ASSERT_EQ(session->staging()[i], std::byte{0}) << "byte " << i % kBytes << " of neighbour " << i / kBytes;
  session.reset();
  ExpectAsBefore({.resident = 16 * kMiB, .mappings = 1500});
}

// Random bytes close the session sooner or later, and only it.
TEST_F(Ring, OfNoiseClosesItsSessionOnly) {
  std::mt19937_64 random(2);
  const int kSessions = InFull() ? 2000 : 300;
  for (int i = 0; i < kSessions; ++i) {
    HostileSession session(socket());
    Prepare(session);
    std::atomic<bool> stop{false};
    std::thread noise([&, seed = random()] {
      std::mt19937_64 own(seed);
      while (!stop.load(std::memory_order_relaxed))
        Store(session.ring().data() + own() % transport::kRingBytes / 8 * 8, 8, own() & own());
    });
    const auto limit = std::chrono::steady_clock::now() + milliseconds(20);
    while (!session.closed() && std::chrono::steady_clock::now() < limit)
      session.PublishUpTo(session.completion().head.load() + transport::kRingBytes);
    stop = true;
    noise.join();
  }
  ExpectAsBefore({.resident = 16 * kMiB, .mappings = 1500});
}

}  // namespace
}  // namespace xpud::isolation
