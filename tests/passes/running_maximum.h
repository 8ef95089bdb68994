#pragma once
#include <algorithm>

#include "nn/parameter.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"

namespace tessera {

// A model with state that its forward pass updates: "largest", the highest value that the MLP of
// the first layer ever made. It keeps its dtype whatever the model computes in.
inline ModelGraph with_running_maximum(ModelGraph model) {
  Graph& g = model.graph;
  const std::string layer = "layers.0.mlp";
  Value made;
  for (const Node& node : g.nodes())
    if (node.scope == layer) made = node.outputs[0];
  const DType dtype = g.type(made).dtype;
  Scope scope(g, layer);
  std::vector<int64_t> dims(g.shape(made).size());
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
  Value highest = g.add_one(std::make_shared<Reduce>(Reduction::kMax, dims),
                            {g.add_one(std::make_shared<Convert>(dtype), {made})});
  Value largest = g.input("largest", InputKind::kState, {{}, dtype});
  g.update("largest", binary(g, BinaryKind::kMax, largest, highest));
  return model;
}

}  // namespace tessera
