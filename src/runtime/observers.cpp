#include "runtime/observers.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/hash.h"
#include "base/log.h"

namespace tessera {
namespace {

bool all_finite(const TensorType& type, const void* data) {
  int64_t n = type.elements();
  for (int64_t i = 0; i < n; ++i) {
    double x = type.dtype == DType::kF32    ? static_cast<const float*>(data)[i]
               : type.dtype == DType::kBF16 ? static_cast<float>(static_cast<const BF16*>(data)[i])
               : type.dtype == DType::kF16  ? static_cast<float>(static_cast<const F16*>(data)[i])
                                            : static_cast<const double*>(data)[i];
    if (!std::isfinite(x)) return false;
  }
  return true;
}

}  // namespace

void NonFiniteFinder::look(const NodeEvent& event) {
  if (!first_.empty()) return;
  for (size_t k = 0; k < event.outputs.size(); ++k) {
    const TensorType& type = event.graph.type(event.node.outputs[k]);
    if (!is_float(type.dtype) || all_finite(type, event.outputs[k])) continue;
    const Node& node = event.node;
    first_ = cat(node.op->name(), node.scope.empty() ? "" : " in ", node.scope, " (",
                 name(node.phase), ")");
    return;
  }
}

HashRecorder::HashRecorder(const std::string& path)
    : path_(path), file_(std::fopen(path.c_str(), "we"), std::fclose) {
  if (!file_) throw UserError(cat("cannot write hashes to '", path, "': ", std::strerror(errno)));
}

void HashRecorder::begin_step(int64_t step) {
  step_ = step;
  index_ = 0;
  if (file_ && std::fflush(file_.get()) != 0) give_up();
}

void HashRecorder::give_up() {
  TESSERA_WARN(cat("cannot write hashes to '", path_, "': ", std::strerror(errno),
                   "; the run goes on without them"));
  file_.reset();
}

void HashRecorder::record(const NodeEvent& event) {
  if (!file_) return;
  for (size_t k = 0; k < event.outputs.size(); ++k) {
    uint64_t hash = hash_bytes(
        event.outputs[k], static_cast<size_t>(event.graph.type(event.node.outputs[k]).bytes()));
    std::string line =
        cat(step_, "\t", index_++, "\t", event.node.scope, "\t", name(event.node.phase), "\t",
            event.node.op->name(), "\t", k, "\t", hex(hash), "\n");
    if (std::fputs(line.c_str(), file_.get()) < 0) return give_up();
  }
}

void OpTimer::add(const NodeEvent& event) {
  std::vector<TensorType> inputs, outputs;
  for (Value v : event.node.inputs) inputs.push_back(event.graph.type(v));
  for (Value v : event.node.outputs) outputs.push_back(event.graph.type(v));
  Cost cost = event.node.op->cost(inputs, outputs);
  Row& row = rows_[{std::string(event.node.op->name()), event.node.phase}];
  row.op = std::string(event.node.op->name());
  row.phase = event.node.phase;
  row.contracts = event.node.op->contracts();
  ++row.launches;
  row.seconds += event.seconds;
  row.flops += cost.flops;
  row.bytes += cost.bytes;
}

std::vector<OpTimer::Row> OpTimer::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, row] : rows_) rows.push_back(row);
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

}  // namespace tessera
