// Scores queries against an index of embeddings, on the device: an example of the C++ SDK, and a process of
// the demo.
//
//   xpud_score QUERIES DIMENSIONS [TOP] [REPEAT]
//
// QUERIES is a file of float32 rows. Reads commands from stdin, one a line: `score INDEX` loads the rows of
// float32 in the file INDEX and reports, as a JSON object after '@', the TOP best rows for each query (dot
// product) and the seconds for one scoring of all queries, the mean of REPEAT.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "xpud/tensor.h"
#include "xpud/xpud.h"

namespace {

[[noreturn]] void Fail(const std::string& reason) {
  std::fprintf(stderr, "xpud_score: %s\n", reason.c_str());
  std::exit(1);
}

// The value, or the end of the program with the reason.
template <typename T>
T Need(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status().ToString());
  return *std::move(value);
}

std::vector<float> ReadFloats(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) Fail("cannot read " + path);
  std::vector<float> values(static_cast<size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

// A positive number from the command line, or the end of the program.
int64_t Positive(const char* text) {
  char* end;
  const long long value = std::strtoll(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1) Fail(std::string(text) + " is no positive number");
  return value;
}

// A matrix on the device, of `columns` columns and as many rows as the file has.
xpud::Tensor Load(const xpud::Queue& queue, const std::string& path, int64_t columns) {
  const std::vector<float> values = ReadFloats(path);
  return Need(
      xpud::Tensor::FromHost(queue, values, {static_cast<int64_t>(values.size()) / columns, columns}));
}

// The positions of the `count` largest scores, best first.
std::vector<size_t> Best(const float* scores, size_t rows, size_t count) {
  std::vector<size_t> order(rows);
  std::iota(order.begin(), order.end(), size_t{0});
  count = std::min(count, rows);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  return order;
}

void Report(const std::vector<float>& scores, int64_t queries, int64_t rows, size_t top, double seconds) {
  std::string json = "@{\"event\":\"scored\",\"rows\":" + std::to_string(rows) +
                     ",\"seconds\":" + std::to_string(seconds) + ",\"results\":[";
  for (int64_t query = 0; query < queries; ++query) {
    const float* of_query = scores.data() + query * rows;
    json += query > 0 ? ",[" : "[";
    for (const size_t row : Best(of_query, static_cast<size_t>(rows), top)) {
      if (json.back() == '}') json += ',';
      json += "{\"row\":" + std::to_string(row) + ",\"score\":" + std::to_string(of_query[row]) + "}";
    }
    json += "]";
  }
  std::cout << json << "]}" << std::endl;
}

void Score(const xpud::Tensor& queries, const xpud::Tensor& index, size_t top, int64_t repeat) {
  using Clock = std::chrono::steady_clock;
  const xpud::Tensor transposed = index.Transpose(0, 1);  // a view: nothing is copied
  const auto began = Clock::now();
  xpud::Tensor scores = Need(xpud::Matmul(queries, transposed));
  for (int64_t i = 1; i < repeat; ++i) scores = Need(xpud::Matmul(queries, transposed));
  if (absl::Status status = scores.queue().Synchronize(); !status.ok()) Fail(status.ToString());
  const double seconds =
      std::chrono::duration<double>(Clock::now() - began).count() / static_cast<double>(repeat);
  Report(Need(scores.ToFloats()), queries.sizes()[0], index.sizes()[0], top, seconds);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) Fail("usage: xpud_score QUERIES DIMENSIONS [TOP] [REPEAT]");
  const int64_t dimensions = Positive(argv[2]);
  const size_t top = argc > 3 ? static_cast<size_t>(Positive(argv[3])) : 3;
  const int64_t repeat = argc > 4 ? Positive(argv[4]) : 100;

  xpud::ConnectOptions options;
  options.client_name = "score (C++)";
  const auto session = Need(xpud::Session::Connect(options));
  const xpud::Queue queue = session->DefaultQueue(0);
  const xpud::Tensor queries = Load(queue, argv[1], dimensions);
  std::cout << "@{\"event\":\"ready\"}" << std::endl;

  const std::string command = "score ";
  for (std::string line; std::getline(std::cin, line) && line.starts_with(command);) {
    Score(queries, Load(queue, line.substr(command.size()), dimensions), top, repeat);
  }
  return 0;
}
