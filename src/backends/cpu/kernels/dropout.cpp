#include "backends/cpu/kernels/dropout.h"

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {

void dropout(const Dropout& args, Isa isa, ThreadPool& pool) {
  auto run = TESSERA_SELECT(isa, dropout_line);
  const RandomLines& lines = args.lines;
  int64_t line_bytes = lines.width() * size_of(args.dtype);
  auto scale = static_cast<float>(65536.0 / (65536 - args.threshold));
  for_ranges(pool, args.rows * lines.lines(), rows_per_tile(lines.width()),
             [&](int64_t begin, int64_t end) {
               for (int64_t line = begin; line < end; ++line) {
                 run(args.dtype, static_cast<const char*>(args.x) + line * line_bytes,
                     static_cast<char*>(args.y) + line * line_bytes, lines.width(),
                     static_cast<uint64_t>(args.row_keys[line / lines.lines()]), args.stream,
                     lines.line_begin(line % lines.lines()), args.threshold, scale);
               }
             });
}

}  // namespace tessera::cpu
