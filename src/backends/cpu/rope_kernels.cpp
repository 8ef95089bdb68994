#include <cmath>
#include <mutex>
#include <tuple>

#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/rope.h"
#include "ops/composite/rope.h"

namespace tessera::cpu {
namespace {

// Scaled cos and sin of every position, shared by all layers of the same (rotary, length) and made
// when the first of them runs: a program that is only planned makes none.
class RotaryTable {
 public:
  RotaryTable(const RotaryAngles& rotary, int64_t length) : rotary_(rotary), length_(length) {}

  const float* cos() { return made().cos_.data(); }  // [T, R/2]
  const float* sin() { return made().sin_.data(); }

 private:
  RotaryTable& made() {
    std::call_once(once_, [this] {
      auto scale = static_cast<float>(rotary_.scale);
      for (int64_t t = 0; t < length_; ++t) {
        for (double f : rotary_.frequencies) {
          // The angle is rounded to f32 first, as the definition in f32 does.
          float angle = static_cast<float>(t) * static_cast<float>(f);
          cos_.push_back(std::cos(angle) * scale);
          sin_.push_back(std::sin(angle) * scale);
        }
      }
    });
    return *this;
  }
  RotaryAngles rotary_;
  int64_t length_;
  std::once_flag once_;
  std::vector<float> cos_, sin_;
};

std::shared_ptr<RotaryTable> rotary_table(const RotaryAngles& rotary, int64_t length) {
  using Key = std::tuple<std::vector<double>, double, int64_t>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<RotaryTable>> cache;
  std::lock_guard lock(mutex);
  auto& entry = cache[{rotary.frequencies, rotary.scale, length}];
  if (auto table = entry.lock()) return table;
  auto table = std::make_shared<RotaryTable>(rotary, length);
  entry = table;
  return table;
}

// Of x [B, T, H, D]; positions, x and y are left out.
Rope rope_of(const TensorType& x, const RotaryAngles& rotary, bool inverse) {
  const Shape& s = x.shape;
  return {.dtype = x.dtype,
          .batch = s[0],
          .tokens = s[1],
          .heads = s[2],
          .width = s[3],
          .rotary = 2 * static_cast<int64_t>(rotary.frequencies.size()),
          .x_stride = s[2] * s[3],
          .y_stride = s[2] * s[3],
          .inverse = inverse};
}

}  // namespace

void register_rope(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("rope", for_floats(0, [isa, &pool](const PrepareContext& c) {
              const auto& op = static_cast<const tessera::Rope&>(c.op);
              auto angles = rotary_table(op.rotary(), c.inputs[0].shape[1]);
              Rope args = rope_of(c.inputs[0], op.rotary(), op.inverse());
              return Launch{kernel_name("rope", isa), 0,
                            [args, angles, isa, &pool,
                             documents = op.documents()](const LaunchArguments& a) mutable {
                              if (documents) {
                                args.document_starts = a.input<int32_t>(1);
                                check_document_starts(args.document_starts, args.batch,
                                                      args.tokens);
                              }
                              args.x = a.inputs[0];
                              args.y = a.outputs[0];
                              args.cos = angles->cos();
                              args.sin = angles->sin();
                              rope(args, isa, pool);
                            }};
            }));
  table.add(
      "rope_at", for_floats(0, [isa, &pool](const PrepareContext& c) {
        const auto& op = static_cast<const RopeAt&>(c.op);
        auto angles = rotary_table(op.rotary(), op.positions());
        Rope args = rope_of(c.inputs[0], op.rotary(), false);
        return Launch{
            kernel_name("rope_at", isa), 0,
            [args, angles, isa, &pool, limit = op.positions()](const LaunchArguments& a) mutable {
              args.start = a.input<int32_t>(1);
              for (int64_t b = 0; b < args.batch; ++b) {
                TESSERA_CHECK(args.start[b] >= 0 && args.start[b] + args.tokens <= limit,
                              "unknown positions");
              }
              args.x = a.inputs[0];
              args.y = a.outputs[0];
              args.cos = angles->cos();
              args.sin = angles->sin();
              rope(args, isa, pool);
            }};
      }));
}

}  // namespace tessera::cpu
