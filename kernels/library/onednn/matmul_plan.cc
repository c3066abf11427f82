#include "kernels/library/onednn/matmul_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/library/simd/simd.h"
#include "kernels/library/thread_memory.h"
#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::onednn {
namespace {

constexpr double kTileNanoseconds = 60e3;  // a tile is not cut much below half of this
constexpr int64_t kMaxTiles = 32;          // beyond this, only tiles grow, up to kMaxTileRows
constexpr int64_t kMaxTileRows = 512;
constexpr int64_t kEnoughTiles = 8, kFewTiles = 4;
// With fewer rows, b is read, or copied, too often; and oneDNN is slow with fewer of packed factors.
constexpr int64_t kPackedRows = 128, kUnpackedRows = 256;
constexpr int64_t kRowsWorthPanels = 1024;
constexpr int64_t kFewRowsBytes = 1 << 20;  // of b, in a tile of a few rows
constexpr int64_t kFewRowsColumns = 1 << 14;
constexpr int64_t kScratchElements = int64_t{1} << 19;  // of a tile that is computed in scratch

// Rates of one core, in operations (bytes) for each nanosecond. They determine only the size of tiles.
double OperationRate(ops::DType type) {
  if (type == ops::DType::kBFloat16 && MultipliesTiles()) return 1000;
  return type == ops::DType::kFloat64 ? 60 : type == ops::DType::kFloat32 ? 200 : 400;
}

// Tiles of a few rows are multiplied faster than a core reads them from beyond its own caches.
double ByteRate(ops::DType type) { return type == ops::DType::kBFloat16 && MultipliesTiles() ? 15 : 40; }

double Estimate(const MatmulProblem& p) {
  const double operations = 2.0 * p.batch * p.m * p.n * p.k;
  const double bytes = 1.0 * p.batch * (p.m * p.n + p.m * p.k + p.k * p.n) * ops::SizeOf(p.in);
  return std::max(operations / OperationRate(p.in), bytes / ByteRate(p.in));
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns a number of tiles near `count` whose last tile is as full as possible: workers that share few tiles
// would wait for each other. `multiple` divides the size of a tile.
int64_t EvenCount(int64_t size, int64_t count, int64_t multiple) {
  int64_t best = count, least = size;
  for (int64_t c = count + count / 3; c >= count - count / 3; --c) {
    const int64_t tile = CeilDivide(CeilDivide(size, c), multiple) * multiple;
    const int64_t missing = CeilDivide(size, tile) * tile - size;
    if (missing < least) best = c, least = missing;
  }
  return best;
}

}  // namespace

MatmulPlan::MatmulPlan(const MatmulProblem& problem) : problem_(problem) {
  const MatmulProblem& p = problem_;
  few_rows_ = p.k > 0 && p.FewRows();
  blocked_ = p.k == 0 || !MultipliesNatively(p.in) || !IsMatrix(p.a, p.m, p.k) || !IsMatrix(p.b, p.k, p.n);
  // Halves are rounded after their gelu, not before it too.
  const bool rounds_once = p.out_type == ops::DType::kFloat32 || p.activation == ops::Activation::kNone ||
                           p.activation == ops::Activation::kRelu;
  direct_ = p.plain && (!p.has_c || p.RowBias()) && p.in == p.out_type && p.out.column == 1 &&
            p.out.row >= p.n && rounds_once;
  nanoseconds_ = Estimate(p);
  batch_.size = p.batch;
  m_.size = p.m;
  n_.size = p.n;
  if (p.panels) panels_ = PanelLayout::Of(p.k, p.n, p.in);
  ChooseTiles();
}

double MatmulPlan::TileNanoseconds() const {
  return 2.0 * batch_.tile * m_.tile * n_.tile * problem_.k / OperationRate(problem_.in);
}

void MatmulPlan::CutAxis(Axis& axis, int64_t count, int64_t multiple) {
  axis.tile = std::min(axis.size,
                       CeilDivide(CeilDivide(axis.size, std::max<int64_t>(1, count)), multiple) * multiple);
  axis.count = CeilDivide(axis.size, axis.tile);
}

void MatmulPlan::ChooseTiles() {
  const MatmulProblem& p = problem_;
  if (few_rows_) {
    CutAxis(batch_, p.batch, 1);
    const int64_t columns =
        std::clamp<int64_t>(kFewRowsBytes / (p.k * ops::SizeOf(p.in)), 64, kFewRowsColumns);
    CutAxis(n_, CeilDivide(p.n, columns), 16);
    CutAxis(m_, 1, 1);
    return;
  }
  if (blocked_) {
    CutAxis(batch_, p.batch, 1);
    CutAxis(m_, CeilDivide(p.m, simd::Product::kMaxRows), 12);
    CutAxis(n_, CeilDivide(p.n, simd::Product::kMaxColumns), 32);
    CutLong(kMaxCopyingNanoseconds, simd::Product::kMaxRows, 12, 32);
    return;
  }
  const int64_t wanted = std::clamp<int64_t>(std::llround(nanoseconds_ / kTileNanoseconds), 1, kMaxTiles);
  const double per_matrix = nanoseconds_ / p.batch;
  CutAxis(batch_, CeilDivide(p.batch, std::max<int64_t>(1, kTileNanoseconds / per_matrix)), 1);
  // Cutting rows keeps rows of out whole, but each tile then reads all of b, and copies it unless it is
  // packed. So columns are cut if the rows do not give enough tiles: few, if the CPU multiplies tiles faster
  // than it copies what they give.
  const int64_t rows = p.packed ? kPackedRows : kUnpackedRows;
  const bool wide = p.packed && p.in == ops::DType::kBFloat16 && MultipliesTiles() && p.m >= 2 * rows;
  int64_t m_count = std::min(CeilDivide(wanted, batch_.count), std::max<int64_t>(1, p.m / rows));
  m_count = std::max(m_count, CeilDivide(p.m, kMaxTileRows));
  CutAxis(m_, m_count, 16);
  int64_t n_count = 1;
  if (batch_.count * m_.count < std::min<int64_t>(wanted, wide ? kFewTiles : kEnoughTiles))
    n_count = EvenCount(p.n, CeilDivide(wide ? kFewTiles : wanted, batch_.count * m_.count), 64);
  if (p.packed && p.m >= rows) n_count = std::clamp<int64_t>(p.n / rows, 1, n_count);
  const bool via_scratch = !direct_ || ((p.packed || n_count > 1) && (n_count > 1 || p.out.row != p.n));
  if (via_scratch) n_count = std::max(n_count, CeilDivide(batch_.tile * m_.tile * p.n, kScratchElements));
  CutAxis(n_, n_count, 64);
  const bool takes_as_is =
      p.packed || (p.b.row == 1 && p.b.column == p.k && p.a.column == 1 && p.a.row == p.k);
  wants_panels_ = !takes_as_is && p.m >= kRowsWorthPanels && TileNanoseconds() > kMaxGroupNanoseconds;
  CutLong(takes_as_is ? kMaxGroupNanoseconds : kMaxCopyingNanoseconds, rows, kMinTileRows, kMinTileColumns);
}

// Cuts tiles that take longer than `most_ns` into some of `most_rows` and as many columns as the time allows.
// If these are the least that there may be, rows are as many as the time allows.
void MatmulPlan::CutLong(double most_ns, int64_t most_rows, int64_t row_multiple, int64_t column_multiple) {
  if (TileNanoseconds() <= most_ns) return;
  const double elements = most_ns / 2 * OperationRate(problem_.in) / static_cast<double>(problem_.k);
  const auto fitting = [&](int64_t other, int64_t multiple) {
    return std::max<int64_t>(static_cast<int64_t>(elements / static_cast<double>(other)) / multiple, 1) *
           multiple;
  };
  CutAxis(batch_, problem_.batch, 1);
  const int64_t columns = fitting(std::min(problem_.m, most_rows), column_multiple);
  CutAxis(n_, CeilDivide(problem_.n, columns), column_multiple);
  CutAxis(m_, CeilDivide(problem_.m, fitting(n_.tile, row_multiple)), row_multiple);
}

MatmulPlan::Tile MatmulPlan::Locate(int64_t index) const {
  const int64_t n = index % n_.count, m = index / n_.count % m_.count, batch = index / n_.count / m_.count;
  Tile t;
  t.batch = batch_.Begin(batch);
  t.m = m_.Begin(m);
  t.n = n_.Begin(n);
  t.batches = batch_.Length(batch);
  t.rows = m_.Length(m);
  t.columns = n_.Length(n);
  t.kind = (t.batches != batch_.tile) * 4 + (t.rows != m_.tile) * 2 + (t.columns != n_.tile);
  return t;
}

// oneDNN's fast kernels require an out without gaps. If copying the tile is cheap compared with the product,
// the product goes to scratch first.
bool MatmulPlan::ViaScratch(const Tile& tile, bool packed) const {
  if (!direct_) return true;
  if (tile.rows == 1 || (tile.columns == problem_.n && problem_.out.row == problem_.n)) return false;
  const bool b_rows_whole = problem_.b.row == 1 && problem_.b.column == problem_.k;
  return tile.batches == 1 && (packed || b_rows_whole) && tile.rows * tile.columns <= kScratchElements;
}

const MatmulPrimitive* MatmulPlan::PrimitiveFor(const Tile& tile, const PanelLayout* panels,
                                                bool via_scratch) const {
  Slot& slot = slots_[panels != nullptr][tile.kind];
  std::call_once(slot.once, [&] {
    const MatmulProblem& p = problem_;
    MatmulPrimitive::Spec spec;
    spec.batch = tile.batches;
    spec.m = tile.rows;
    spec.n = tile.columns;
    spec.k = p.k;
    spec.in = p.in;
    spec.out_type = direct_ ? p.out_type : ops::DType::kFloat32;
    spec.a = p.a;
    spec.b = p.b;
    spec.out = p.out;
    if (via_scratch) spec.out = {tile.rows * tile.columns, tile.columns, 1};
    if (panels != nullptr) spec.b_tag = panels->tag;
    spec.row_bias = direct_ && p.has_c;
    slot.primitive = MatmulPrimitive::Create(spec);
  });
  return slot.primitive.get();
}

bool MatmulPlan::CreatePrimitives() const {
  for (const int64_t batch : {int64_t{0}, batch_.count - 1})
    for (const int64_t m : {int64_t{0}, m_.count - 1})
      for (const int64_t n : {int64_t{0}, n_.count - 1}) {
        const Tile tile = Locate((batch * m_.count + m) * n_.count + n);
        if (PrimitiveFor(tile, &panels_, ViaScratch(tile, true)) == nullptr) return false;
      }
  return true;
}

void MatmulPlan::Finish(const Tile& tile, const void* acc, int64_t leading, int64_t batch, int64_t row,
                        int64_t column, int64_t rows, int64_t columns) const {
  const MatmulProblem& p = problem_;
  const int64_t out = ops::SizeOf(p.out_type);
  simd::Epilogue e;
  e.wide = p.in == ops::DType::kFloat64;
  e.m = rows;
  e.n = columns;
  e.acc = acc;
  e.leading = leading;
  e.alpha = tile.at.alpha;
  e.beta = tile.at.beta;
  if (p.has_c)
    e.c = {tile.at.c + (batch * p.c.batch + row * p.c.row + column * p.c.column) * out, p.out_type, p.c.row,
           p.c.column};
  e.activation = p.activation;
  e.out = tile.at.out + (batch * p.out.batch + row * p.out.row + column * p.out.column) * out;
  e.out_dtype = p.out_type;
  e.out_row = p.out.row;
  e.out_column = p.out.column;
  simd::Best().finish(e);
}

// oneDNN's activations lose NaN (relu) and infinity (gelu by erf), and are no faster than ours, which find
// the tile in the caches. Strides are in elements.
void MatmulPlan::Activate(const Tile& tile, std::byte* out, int64_t batch_stride, int64_t row_stride) const {
  if (problem_.activation == ops::Activation::kNone) return;
  simd::Epilogue e;
  e.wide = problem_.in == ops::DType::kFloat64;
  e.m = tile.rows;
  e.n = tile.columns;
  e.activation = problem_.activation;
  e.out_dtype = problem_.out_type;
  e.out_row = row_stride;
  e.out_column = 1;
  for (int64_t i = 0; i < tile.batches; ++i) {
    e.out = out + i * batch_stride * static_cast<int64_t>(ops::SizeOf(problem_.out_type));
    simd::Best().finish(e);
  }
}

void MatmulPlan::RunPrimitive(const MatmulPrimitive& primitive, const Tile& tile, const std::byte* b,
                              bool via_scratch, void* scratch) const {
  const size_t element = direct_ ? ops::SizeOf(problem_.out_type) : sizeof(float);
  const size_t tile_bytes =
      via_scratch ? (tile.batches * tile.rows * tile.columns * element + 63) / 64 * 64 : 0;
  const size_t needed = tile_bytes + primitive.scratch_bytes();
  std::byte* const memory =
      needed <= XPUD_HOST_SCRATCH_BYTES ? static_cast<std::byte*>(scratch) : ThreadMemory(needed);
  std::byte* const out = via_scratch ? memory : tile.at.out;
  primitive.Run(tile.at.a, b, tile.at.c, out, memory + tile_bytes);
  if (!via_scratch) return Activate(tile, out, problem_.out.batch, problem_.out.row);
  if (!direct_) {
    for (int64_t i = 0; i < tile.batches; ++i)
      Finish(tile, out + i * tile.rows * tile.columns * element, tile.columns, i, 0, 0, tile.rows,
             tile.columns);
    return;
  }
  Activate(tile, out, 0, tile.columns);  // of one batch
  for (int64_t r = 0; r < tile.rows; ++r)
    std::memcpy(tile.at.out + r * problem_.out.row * element, out + r * tile.columns * element,
                tile.columns * element);
}

void MatmulPlan::RunFewRows(const Tile& tile, void* scratch) const {
  const MatmulProblem& p = problem_;
  float* const a = static_cast<float*>(scratch);
  simd::Dots dots;
  dots.m = tile.rows;
  dots.n = tile.columns;
  dots.k = p.k;
  dots.a = a;
  dots.a_row = CeilDivide(p.k, 16) * 16;
  dots.acc = a + p.kFewRows * dots.a_row;
  dots.leading = kFewRowsColumns;
  dots.b = {tile.at.b, p.in, p.b.row, p.b.column};
  static_assert((MatmulProblem::kMaxDot + kFewRowsColumns) * MatmulProblem::kFewRows * sizeof(float) <=
                XPUD_HOST_SCRATCH_BYTES);
  for (int64_t i = 0; i < tile.rows; ++i) {
    const simd::MatrixView row{tile.at.a + i * p.a.row * static_cast<int64_t>(ops::SizeOf(p.in)), p.in,
                               p.a.row, p.a.column};
    simd::Best().gather({row, 1, p.k, a + i * dots.a_row, ops::DType::kFloat32});
    std::fill(a + i * dots.a_row + p.k, a + (i + 1) * dots.a_row, 0.0f);
  }
  simd::Best().dot(dots);
  Finish(tile, dots.acc, dots.leading, 0, 0, 0, tile.rows, tile.columns);
}

void MatmulPlan::RunBlocked(const Tile& tile, void* scratch) const {
  using simd::Product;
  const MatmulProblem& p = problem_;
  const int64_t in = ops::SizeOf(p.in), b_in = ops::SizeOf(p.b_source);
  Product product;
  product.wide = p.in == ops::DType::kFloat64;
  product.k = p.k;
  product.acc = scratch;
  product.scratch = static_cast<std::byte*>(scratch) + Product::kAccBytes;
  for (int64_t batch = 0; batch < tile.batches; ++batch) {
    for (int64_t row = 0; row < tile.rows; row += Product::kMaxRows) {
      for (int64_t column = 0; column < tile.columns; column += Product::kMaxColumns) {
        product.m = std::min(Product::kMaxRows, tile.rows - row);
        product.n = std::min(Product::kMaxColumns, tile.columns - column);
        product.a = {tile.at.a + (batch * p.a.batch + row * p.a.row) * in, p.in, p.a.row, p.a.column};
        product.b = {tile.at.b + (batch * p.b.batch + column * p.b.column) * b_in, p.b_source, p.b.row,
                     p.b.column};
        simd::Best().multiply(product);
        Finish(tile, product.acc, Product::kLeading, batch, row, column, product.m, product.n);
      }
    }
  }
}

void MatmulPlan::RunTile(int64_t index, const MatmulOperands& operands, const PackedMatrix* packed,
                         void* scratch) const {
  Tile tile = Locate(index);
  tile.at = problem_.At(operands, tile.batch, tile.m, tile.n);
  if (few_rows_) return RunFewRows(tile, scratch);
  if (blocked_) return RunBlocked(tile, scratch);
  const auto run = [&](const PanelLayout* panels, const std::byte* b) {
    const bool via_scratch = ViaScratch(tile, panels != nullptr);
    const MatmulPrimitive* const primitive = PrimitiveFor(tile, panels, via_scratch);
    if (primitive != nullptr) RunPrimitive(*primitive, tile, b, via_scratch, scratch);
    return primitive != nullptr;
  };
  if (problem_.panels) {
    XPUD_CHECK(run(&panels_, tile.at.b));
    return;
  }
  if (packed != nullptr && packed->Ready() && run(&packed->layout(), packed->Panel(tile.n))) return;
  const bool typed = problem_.b_source == problem_.in;  // else only the packed form has the right type
  if (typed && run(nullptr, tile.at.b)) return;
  RunBlocked(tile, scratch);
}

}  // namespace xpud::kernels::onednn
