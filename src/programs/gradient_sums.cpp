#include "programs/gradient_sums.h"

#include <algorithm>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {

GradientSums::GradientSums(const Graph& from, Graph& to, Rewriter& rewriter)
    : from_(from), to_(to), rewriter_(rewriter), readers_(from.num_values(), 0) {
  for (const Node& node : from.nodes())
    for (Value v : node.inputs) ++readers_[static_cast<size_t>(v.id)];
  for (const GraphOutput& output : from.outputs()) ++readers_[static_cast<size_t>(output.value.id)];
  for (const StateUpdate& update : from.updates()) ++readers_[static_cast<size_t>(update.value.id)];
}

bool GradientSums::take(Value gradient, const std::string& slot) {
  auto sums = std::make_shared<Sums>(Sums{slot, from_.type(gradient), {}, {}});
  std::vector<Value> parts;
  if (readers(gradient) > 0 || !dynamic_cast<const Flatten*>(maker(gradient).op.get()) ||
      !find_parts(gradient, 0, sums->members, parts))
    return false;
  for (size_t k = 0; k < parts.size(); ++k) parts_[parts[k]] = {sums, k};
  return true;
}

void GradientSums::copy(const Node& node) {
  std::vector<std::pair<size_t, Part>> made;
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if (auto part = parts_.find(node.outputs[k]); part != parts_.end())
      made.push_back({k, part->second});
  if (made.empty()) return rewriter_.copy(node);
  rewriter_.enter(node);
  OpPtr adding = made.size() == 1 ? node.op->adding(static_cast<int>(made[0].first)) : nullptr;
  if (adding) {
    std::vector<Value> operands = rewriter_(node.inputs);
    operands.push_back(so_far(made[0].second));
    std::vector<Value> outputs = to_.add(adding, operands);
    for (size_t k = 0; k < outputs.size(); ++k) rewriter_.map(node.outputs[k], outputs[k]);
    return;
  }
  rewriter_.copy(node);
  for (const auto& [k, part] : made)
    rewriter_.map(node.outputs[k], add(to_, so_far(part), rewriter_(node.outputs[k])));
}

bool GradientSums::find_parts(Value v, int64_t offset, std::vector<UnitMember>& members,
                              std::vector<Value>& parts) const {
  const Node& node = maker(v);
  std::vector<int64_t> offsets{0};
  std::span<const Value> of = node.inputs;
  const auto output = std::ranges::find(node.outputs, v) - node.outputs.begin();
  if (const auto* flatten = dynamic_cast<const Flatten*>(node.op.get())) {
    offsets = flatten->offsets();
  } else if (is_added(node, static_cast<int>(output))) {
    of = of.last(1);
  } else if (!dynamic_cast<const Reshape*>(node.op.get())) {
    members.push_back({offset, from_.shape(v)});
    parts.push_back(v);
    return true;
  }
  for (size_t k = 0; k < of.size(); ++k)
    if (readers(of[k]) != 1 || !find_parts(of[k], offset + offsets[k], members, parts))
      return false;
  return true;
}

Value GradientSums::so_far(const Part& part) {
  Sums& sums = *part.sums;
  if (sums.views.empty())
    sums.views = to_.add(std::make_shared<Unflatten>(sums.members),
                         {to_.input(sums.slot, InputKind::kState, sums.type)});
  return sums.views[part.member];
}

}  // namespace tessera
