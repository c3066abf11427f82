// Multiplies a stream of matrices by one that stays on the device, with the copies of one chunk under way
// while another is computed: an example of queues, events and host memory.
//
//   xpud_pipeline [CHUNKS] [ROWS]
//
// Each chunk of ROWS x 512 float32 goes up, through y = x W, and down again. First one step after the other,
// each waited for; then with a queue each for uploads, products and downloads, that wait for each other on
// the device by events. Prints the seconds of both and a checksum, which must be the same.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "xpud/tensor.h"
#include "xpud/xpud.h"

namespace {

constexpr int64_t kColumns = 512;
constexpr size_t kSlots = 2;  // one chunk is copied while the other is computed

[[noreturn]] void Fail(const std::string& reason) {
  std::fprintf(stderr, "xpud_pipeline: %s\n", reason.c_str());
  std::exit(1);
}

// The value, or the end of the program with the reason. A service would pass the status on.
template <typename T>
T Need(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status().ToString());
  return *std::move(value);
}
void Need(const absl::Status& status) {
  if (!status.ok()) Fail(status.ToString());
}

int64_t Positive(const char* text) {
  char* end;
  const long long value = std::strtoll(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1) Fail(std::string(text) + " is no positive number");
  return value;
}

// Small whole numbers: their products are exact in any order of summation.
void Fill(std::span<float> values, int64_t chunk) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 31 + static_cast<size_t>(chunk) * 17) % 7) - 3.0F;
  }
}

double SumOf(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum;
}

// Host memory that the daemon shares: copies from and to it go straight between it and the device, and
// StartUpload and StartDownload do not wait for them.
struct HostFloats {
  HostFloats(xpud::Session& session, size_t count)
      : memory(Need(session.AllocateHost(count * sizeof(float)))),
        values(reinterpret_cast<float*>(memory.bytes().data()), count) {}
  xpud::HostBuffer memory;
  std::span<float> values;
};

// What a chunk needs while it is under way. Its memory is reused by every second chunk, so each step waits
// for the step of the chunk before that used the same memory.
struct Slot {
  Slot(xpud::Session& session, const xpud::Queue& compute, int64_t rows)
      : input(session, static_cast<size_t>(rows * kColumns)),
        output(session, static_cast<size_t>(rows * kColumns)),
        x(Need(xpud::Tensor::Empty(compute, xpud::ops::DType::kFloat32, {rows, kColumns}))),
        y(x) {}
  HostFloats input, output;
  xpud::Tensor x, y;
  xpud::Event uploaded, computed, downloaded;  // recorded nowhere yet: complete
  bool filled = false;
};

double Serial(const xpud::Queue& queue, const xpud::Tensor& weights, int64_t chunks, int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * kColumns));
  double checksum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    Fill(values, chunk);
    const xpud::Tensor x = Need(xpud::Tensor::FromHost(queue, values, {rows, kColumns}));
    const xpud::Tensor y = Need(xpud::Matmul(x, weights));
    checksum += SumOf(Need(y.ToFloats()));  // waits
  }
  return checksum;
}

class Pipeline {
 public:
  Pipeline(xpud::Session& session, xpud::Tensor weights, int64_t rows)
      : weights_(std::move(weights)),
        upload_(Need(session.CreateQueue(0))),
        download_(Need(session.CreateQueue(0))),
        slots_{Slot(session, weights_.queue(), rows), Slot(session, weights_.queue(), rows)} {}

  double Run(int64_t chunks) {
    double checksum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      Slot& slot = slots_[static_cast<size_t>(chunk) % kSlots];
      checksum += Take(slot);
      Fill(slot.input.values, chunk);
      Send(slot);
    }
    for (Slot& slot : slots_) checksum += Take(slot);
    return checksum;
  }

 private:
  // The result of the slot's last chunk, once it is there. The other slot's chunk goes on meanwhile.
  static double Take(Slot& slot) {
    if (!slot.filled) return 0;
    Need(slot.downloaded.Synchronize());  // raises what went wrong before, too
    slot.filled = false;
    return SumOf(slot.output.values);
  }

  // Nothing here waits: the queues do, for each other's events.
  void Send(Slot& slot) {
    const xpud::Queue& compute = weights_.queue();
    Need(upload_.Wait(slot.computed));  // the product that read x before
    Need(upload_.StartUpload(slot.input.memory.bytes(), slot.x.ref().buffer, 0));
    slot.uploaded = Need(upload_.Record());

    Need(compute.Wait(slot.uploaded));
    slot.y = Need(xpud::Matmul(slot.x, weights_));  // on the queue of x
    slot.computed = Need(compute.Record());

    Need(download_.Wait(slot.computed));
    Need(download_.StartDownload(slot.y.ref().buffer, 0, slot.output.memory.bytes()));
    slot.downloaded = Need(download_.Record());
    slot.filled = true;
  }

  const xpud::Tensor weights_;
  const xpud::Queue upload_, download_;
  std::array<Slot, kSlots> slots_;
};

template <typename Work>
std::pair<double, double> Timed(Work work) {
  const auto began = std::chrono::steady_clock::now();
  const double result = work();
  return {result, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3) Fail("usage: xpud_pipeline [CHUNKS] [ROWS]");
  const int64_t chunks = argc > 1 ? Positive(argv[1]) : 16;
  const int64_t rows = argc > 2 ? Positive(argv[2]) : 4096;

  const auto session = Need(xpud::Session::Connect({}));  // finds the daemon, or starts one
  if (session->devices().empty()) Fail("the daemon has no device for this process");
  const xpud::DeviceInfo& device = session->devices()[0];
  std::printf("%s (%s), %.1f GiB\n", device.name.c_str(), device.kind.c_str(),
              static_cast<double>(device.total_memory) / (1 << 30));

  std::vector<float> values(kColumns * kColumns);
  Fill(values, 1);
  const xpud::Tensor weights =
      Need(xpud::Tensor::FromHost(session->DefaultQueue(0), values, {kColumns, kColumns}));
  Pipeline pipeline(*session, weights, rows);
  pipeline.Run(kSlots);  // what is compiled and allocated at first use

  const auto [serial, serial_seconds] = Timed([&] { return Serial(weights.queue(), weights, chunks, rows); });
  const auto [overlapped, overlapped_seconds] = Timed([&] { return pipeline.Run(chunks); });
  std::printf("one after the other  %.3f s  checksum %.0f\n", serial_seconds, serial);
  std::printf("overlapped           %.3f s  checksum %.0f\n", overlapped_seconds, overlapped);
  if (serial != overlapped) Fail("the checksums differ");
  return 0;
}
