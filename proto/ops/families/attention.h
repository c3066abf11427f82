// Scaled dot product attention and its gradients.
//
// Attention: out[B,H,S,E], logsumexp?[B,H,S] f32 <- query[B,H,S,D], key[B,Hk,T,D], value[B,Hk,T,E],
// mask?[B,H,S,T] (strides 0 to broadcast; bool, or the query's type and added to scores). Hk divides H.
// `is_causal` is upper-left aligned. If a query may attend to no key, its out and logsumexp are 0.
//
// TrainingAttention: the same with dropout of weights; logsumexp is f64 for f64. The weight of query s and
// key t is 0 if rand(seed, offset) of op_table.h, in f32 for all types, is below `dropout` for element
// i = ((b H + h) S + s) T + t; otherwise it is divided by 1 - dropout.
//
// AttentionBackward: query_gradient, key_gradient, value_gradient <- gradient[B,H,S,E] of out, the inputs
// and results of TrainingAttention, with the same attributes. Gradients have the inputs' shapes: those of
// keys and values are sums over the query heads that share them. A query that may attend to no key
// contributes 0.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct AttentionCall {
  T out{}, logsumexp{}, query{}, key{}, value{}, mask{};
  double scale = 1;
  bool is_causal = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Output(named.logsumexp, "logsumexp", kOptional);
    visitor.Input(named.query, "query");
    visitor.Input(named.key, "key");
    visitor.Input(named.value, "value");
    visitor.Input(named.mask, "mask", kOptional);
    visitor.Attribute(named.scale, "scale");
    visitor.Attribute(named.is_causal, "is_causal");
  }
};

struct TrainingAttributes {
  double scale = 1;
  bool is_causal = false;
  double dropout = 0;
  int64_t seed = 0, offset = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Attribute(named.scale, "scale");
    visitor.Attribute(named.is_causal, "is_causal");
    visitor.Attribute(named.dropout, "dropout");
    visitor.Attribute(named.seed, "seed");
    visitor.Attribute(named.offset, "offset");
  }
};

template <typename T>
struct TrainingAttentionCall {
  T out{}, logsumexp{}, query{}, key{}, value{}, mask{};
  TrainingAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Output(named.logsumexp, "logsumexp", kOptional);
    visitor.Input(named.query, "query");
    visitor.Input(named.key, "key");
    visitor.Input(named.value, "value");
    visitor.Input(named.mask, "mask", kOptional);
    TrainingAttributes::Visit(named.attributes, visitor);
  }
};

template <typename T>
struct AttentionBackwardCall {
  T query_gradient{}, key_gradient{}, value_gradient{}, gradient{}, query{}, key{}, value{}, out{},
      logsumexp{}, mask{};
  TrainingAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.query_gradient, "query_gradient");
    visitor.Output(named.key_gradient, "key_gradient");
    visitor.Output(named.value_gradient, "value_gradient");
    visitor.Input(named.gradient, "gradient");
    visitor.Input(named.query, "query");
    visitor.Input(named.key, "key");
    visitor.Input(named.value, "value");
    visitor.Input(named.out, "out");
    visitor.Input(named.logsumexp, "logsumexp");
    visitor.Input(named.mask, "mask", kOptional);
    TrainingAttributes::Visit(named.attributes, visitor);
  }
};

}  // namespace xpud::ops
