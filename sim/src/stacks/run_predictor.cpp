#include "stacks/run_predictor.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "core/error.hpp"
#include "core/index.hpp"
#include "prices/element_bytes.hpp"
#include "prices/offload.hpp"
#include "schedules/pipeline_time.hpp"
#include "stacks/optimizer/muon.hpp"
#include "stacks/shard_prices.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;

/// One layer (or embedding, or head) for one micro-batch.
struct LayerTime {
  PhaseTime forward;
  PhaseTime backward;   // with what it recomputes
  PhaseTime recompute;  // that alone
  LayerTime& add(const LayerTime& other, double times);
};

LayerTime& LayerTime::add(const LayerTime& other, double times) {
  for (PhaseTime LayerTime::*phase :
       {&LayerTime::forward, &LayerTime::backward, &LayerTime::recompute})
    (this->*phase).add(other.*phase, times);
  return *this;
}

double seconds(const PhaseTime& time) {
  return std::max(time.gpu(), time.host);
}

class Predictor {
 public:
  Predictor(const TrainingRun& run, const ExecutionProfile& profile, const Cluster& cluster,
            const RunPlacements& placements, const StageWork& work, const Constants& constants)
      : run_(run),
        profile_(profile),
        placements_(placements),
        work_(work),
        constants_(constants),
        pricer_(run, profile, cluster, placements, constants),
        host_(host_link(cluster.device)),
        shards_(run, profile, placements, pricer_, host_) {
    for (const LayerWork& layer : work.works) layers_.push_back(price(layer));
    embedding_ = price(work.embedding);
    head_ = price(work.head);
  }

  RunPrediction run(double most_s) {
    RunPrediction prediction;
    RunBreakdown& parts = prediction.seconds;
    if (run_.shards_layers()) {
      const double passes = sharded_steps(parts);
      add_to(prediction.busy, parts, 1);
      finish(prediction, passes + step_end(parts));
      return prediction;
    }
    const Pipeline pipeline = pipeline_of(parts, prediction.busy);
    const double tail = step_end(parts);
    constexpr double kRounding = 1e-9;
    prediction.step_time_s =
        (1 - kRounding) * with_step_effects(pricer_.cluster(), pipeline.slowest + tail);
    prediction.at_least = prediction.step_time_s > most_s;
    if (prediction.at_least) {
      parts = {};
      return prediction;
    }
    const double total = run_.flushes * pipeline_seconds(pipeline.input);
    parts.pipeline = total - pipeline.slowest;
    finish(prediction, total + tail);
    return prediction;
  }

  double exposed_sends() const {
    if (run_.shards_layers() || run_.parallel.pp == 1) return 0;
    RunBreakdown parts;
    BusyTime busy;
    PipelineInput input = pipeline_of(parts, busy).input;
    const double total = pipeline_seconds(input);
    std::ranges::fill(input.transfers, 0);
    return run_.flushes * (total - pipeline_seconds(input));
  }

 private:
  LayerTime price(const LayerWork& layer) const {
    const PhaseTime recompute = pricer_.price(layer.recompute);
    PhaseTime backward = recompute;
    backward.add(pricer_.price(layer.backward));
    LayerTime time{
        .forward = pricer_.price(layer.forward), .backward = backward, .recompute = recompute};
    hide_exchange(time);
    return time;
  }

  /// An overlapped exchange of experts in one pass moves beside the other pass of another
  /// micro-batch (Megatron-LM, overlap_moe_expert_parallel_comm; DeepSeek-V3, 3.2.1): beside all
  /// that the layer computes. That is slower meanwhile; what is longer is waited for.
  void hide_exchange(LayerTime& time) const {
    const double exchange = time.forward.exchange + time.backward.exchange;
    if (exchange <= 0) return;
    const double hidden = std::min(exchange, time.forward.compute + time.backward.compute);
    const double paid = (exchange - hidden + constants_.dp_exposed * hidden) / exchange;
    for (PhaseTime* phase : {&time.forward, &time.backward}) {
      phase->exposed += paid * phase->exchange;
      phase->experts += paid * phase->exchange;
      phase->hidden += (1 - paid) * phase->exchange;
    }
  }

  LayerTime chunk_time(const ChunkWork& chunk) const {
    LayerTime sum;
    for (const LayerCount& layers : chunk.layers) sum.add(layers_[at(layers.work)], layers.count);
    sum.add(embedding_, chunk.lookups);
    if (chunk.head) sum.add(head_, chunk.predictions);
    return sum;
  }

  std::vector<double> send_seconds() const {
    const auto& parallel = run_.parallel;
    double bytes = static_cast<double>(run_.local_tokens()) * run_.model.hidden_size * kHalfBytes;
    if (parallel.sp || !profile_.replicated_activation_sends) bytes /= parallel.tp;
    std::vector<double> seconds;
    for (const GroupPlacement& boundary : placements_.next_stage)
      seconds.push_back(pricer_.transfer(bytes, boundary));
    return seconds;
  }

  /// Bytes of activations that a micro-batch moves to the host, and back.
  double offloaded_bytes(const LayerWork& layer) const {
    return layer.saved_bytes * run_.offloaded_activations();
  }
  double offloaded_bytes(const ChunkWork& chunk) const {
    double bytes = 0;
    for (const LayerCount& layers : chunk.layers)
      bytes += layers.count * offloaded_bytes(work_.works[at(layers.work)]);
    return bytes;
  }

  /// A phase beside its copies to or from the host.
  double with_copies(const PhaseTime& time, double bytes, RunBreakdown& parts, double times) const {
    const double alone = seconds(time);
    const double total = beside_transfer(alone, bytes, host_);
    parts.offload += times * (total - alone);
    return total;
  }

  static void add_to(BusyTime& busy, const RunBreakdown& parts, double share) {
    busy.computing += share * parts.compute;
    busy.forward += share * parts.forward;
    busy.recompute += share * parts.recompute;
    busy.moving += share * parts.tensor;
  }
  void add_to(RunBreakdown& parts, const LayerTime& time, double times) const {
    add_to(parts, time.forward, times);
    add_to(parts, time.backward, times);
    parts.forward += times * time.forward.compute;
    const PhaseTime& again = time.recompute;
    parts.recompute += times * again.compute;
    parts.recomputed_products += times * again.products;
    parts.recomputed_attention += times * again.attention;
    parts.product_flops -= times * again.product_flops;
    parts.attention_flops -= times * again.attention_flops;
  }
  void add_to(RunBreakdown& parts, const PhaseTime& time, double times) const {
    parts.compute += times * time.compute;
    parts.products += times * time.products;
    parts.attention += times * time.attention;
    parts.starts += times * time.starts;
    parts.tensor += times * time.exposed;
    parts.context += times * time.context;
    parts.experts += times * time.experts;
    parts.product_flops += times * time.product_flops;
    parts.attention_flops += times * time.attention_flops;
    parts.host += times * std::max(0.0, time.host - time.gpu());
  }

  struct Pipeline {
    PipelineInput input;
    double slowest = 0;  // seconds in which the slowest stage is busy
  };

  /// @param parts  become those of the slowest stage
  Pipeline pipeline_of(RunBreakdown& parts, BusyTime& mean) const {
    Pipeline pipeline;
    PipelineInput& input = pipeline.input;
    input = {.schedule = run_.pipeline_schedule(),
             .num_microbatches = run_.microbatches_of_flush()};
    double slowest = 0;
    const double receive = pricer_.gather_received();
    for (const auto& chunks : work_.stages) {
      auto& stage = input.stages.emplace_back();
      RunBreakdown own;
      double busy = 0;
      for (const ChunkWork& chunk : chunks) {
        LayerTime time = chunk_time(chunk);
        if (!chunk.embedding) time.forward.exposed += receive;
        if (!chunk.head) time.backward.exposed += receive;
        const double copies = offloaded_bytes(chunk);
        const double forward = with_copies(time.forward, copies, own, run_.num_microbatches());
        const double backward = with_copies(time.backward, copies, own, run_.num_microbatches());
        stage.push_back({forward, backward});
        busy += stage.back().forward + stage.back().backward;
        add_to(own, time, run_.num_microbatches());
      }
      add_to(mean, own, 1.0 / static_cast<double>(work_.stages.size()));
      if (busy <= slowest) continue;
      slowest = busy;
      parts = own;
    }
    pipeline.slowest = slowest * run_.num_microbatches();
    input.transfers = send_seconds();
    if (!is_on(run_.settings.overlap_p2p)) input.transfer_busy = 0.5;
    return pipeline;
  }

  // ---- fully sharded parameters

  double sharded_steps(RunBreakdown& parts) const {
    const double summed = run_.whole_gradients() ? 1 : run_.num_microbatches();
    return sharded_passes(summed, true, parts) +
           sharded_passes(run_.num_microbatches() - summed, false, parts);
  }

  /// A layer gathers its parameters while the layer before it computes and sums its gradients while
  /// the next one does (Zhao et al. 2023, PyTorch FSDP, section 3.3): what is longer than these is
  /// waited for. So is what has nothing before or after it: embedding and head, which are one unit
  /// that stays gathered until the backward pass is over, and the first layer.
  /// @param times  micro-batches, after which gradients are summed or not
  double sharded_passes(double times, bool sums, RunBreakdown& parts) const {
    const std::vector<ShardUnit> layers = shard_units(sums, times, parts);
    const ShardUnit ends = end_unit(sums, times, parts);
    const double head_times = work_.stages.front().front().predictions;
    // Sums across nodes have a stream, a communicator and links of their own (PyTorch,
    // fsdp/_runtime_utils.py, _all_reduce_stream): they move beside gathers and scatters in the
    // nodes, of other layers.
    const auto beside = [&](double window, double in_node, double across = 0) {
      const bool overlaps = is_on(run_.settings.overlap_dp);
      const double longer = overlaps ? std::max(0.0, across - in_node) : across;
      const double exposed =
          exposed_under(in_node, window, shards_.dense_shards()) +
          exposed_under(longer, std::max(0.0, window - in_node), placements_.across_dp);
      parts.data_parallel += times * exposed;
      return window + exposed;
    };
    double total = beside(0, ends.gather) + beside(seconds(embedding_.forward), layers[0].gather);
    for (std::size_t i = 0; i < layers.size(); ++i)
      total += beside(layers[i].forward, i + 1 < layers.size() ? layers[i + 1].gather : 0);
    total += head_times * seconds(head_.forward);

    total += beside(head_times * seconds(head_.backward), layers.back().gather);
    for (std::size_t i = layers.size(); i-- > 0;) {
      const ShardUnit* after = i + 1 < layers.size() ? &layers[i + 1] : nullptr;
      const double in_node =
          (i > 0 ? layers[i - 1].gather : 0) + (after != nullptr ? after->scatter : 0);
      total += beside(layers[i].backward, in_node, after != nullptr ? after->across : 0);
    }
    // Nothing else is left to move beside the first layer's sums.
    const double last = seconds(embedding_.backward);
    total += beside(last, layers[0].scatter) +
             beside(std::max(0.0, last - layers[0].scatter), 0, layers[0].across) -
             std::max(0.0, last - layers[0].scatter);
    total += beside(0, ends.scatter) + beside(0, 0, ends.across) + ends.copies;
    return times * total;
  }

  /// What is gathered and summed at once, with the phases that hide it for others.
  struct ShardUnit {
    double gather = 0, scatter = 0, across = 0;  // seconds of communication
    double copies = 0;                           // into and out of its buffers
    double forward = 0, backward = 0;            // with these copies and those to the host
  };

  /// Layers in their order.
  std::vector<ShardUnit> shard_units(bool sums, double times, RunBreakdown& parts) const {
    std::vector<ShardUnit> units;
    for (const LayerCount& layers : work_.stages.front().front().layers) {
      const LayerWork& work = work_.works[at(layers.work)];
      const LayerTime& time = layers_[at(layers.work)];
      const double passes = times * layers.count;
      ShardUnit unit = traffic_of(shards_.traffic(work), sums);
      const double gathering = shards_.gather_copies(work);
      const double summing = sums ? shards_.scatter_copies(work) : 0;
      const double to_host = offloaded_bytes(work);
      unit.forward = gathering + with_copies(time.forward, to_host, parts, passes);
      unit.backward = gathering + summing + with_copies(time.backward, to_host, parts, passes);
      parts.data_parallel += passes * (2 * gathering + summing);
      add_to(parts, time, passes);
      units.insert(units.end(), at(layers.count), unit);
    }
    return units;
  }

  /// Embedding and head; tied ones are one matrix.
  ShardUnit end_unit(bool sums, double times, RunBreakdown& parts) const {
    LayerWork work = work_.embedding;
    if (!work_.tied) {
      work.parameters.add(work_.head.parameters, 1);
      work.trained.add(work_.head.trained, 1);
    }
    ShardUnit unit = traffic_of(shards_.traffic(work), sums);
    unit.copies = shards_.gather_copies(work) + (sums ? shards_.scatter_copies(work) : 0);
    parts.data_parallel += times * unit.copies;
    add_to(parts, embedding_, times);
    add_to(parts, head_, times * work_.stages.front().front().predictions);
    return unit;
  }

  static ShardUnit traffic_of(const ShardTraffic& traffic, bool sums) {
    ShardUnit unit;
    unit.gather = traffic.gather;
    if (!sums) return unit;
    unit.scatter = traffic.scatter;
    unit.across = traffic.across;
    return unit;
  }

  // ---- end of the step

  void finish(RunPrediction& prediction, double work) const {
    const GroupPlacement& experts = placements_.ep;
    prediction.experts_across_nodes = experts.size > 1 && *experts.level > 0;
    prediction.step_time_s = with_step_effects(pricer_.cluster(), work);
    prediction.seconds.overhead = prediction.step_time_s - work;
  }

  bool shards_optimizer() const { return run_.zero_stage >= 1; }

  double step_end(RunBreakdown& parts) const {
    double worst = 0;
    RunBreakdown tail;
    for (int s = 0; s < run_.parallel.pp; ++s) {
      RunBreakdown own;
      const double total = reduce_seconds(s, own) + optimizer_seconds(s, own);
      if (total <= worst) continue;
      worst = total;
      tail = own;
    }
    parts.optimizer = tail.optimizer;
    parts.data_parallel += tail.data_parallel;
    parts.offload += tail.offload;
    return worst;
  }

  /// Gradients of a stage, dense and expert ones over their own groups.
  double reduce_seconds(int stage, RunBreakdown& parts) const {
    if (run_.shards_layers()) return 0;
    const double gradient_bytes = profile_.reduce_bytes;
    const auto reduced = [&](double parameters, double gathered, const GroupPlacement& group) {
      if (group.size <= 1) return 0.0;
      if (!shards_optimizer()) {
        if (parameters <= 0) return 0.0;
        return exposed_scatter(
            pricer_.collective(Collective::AllReduce, parameters * gradient_bytes, group), stage,
            group);
      }
      double seconds = 0;
      if (parameters > 0)
        seconds += exposed_scatter(
            pricer_.collective(sum_of_gradients(), parameters * gradient_bytes, group), stage,
            group);
      if (gathered > 0)
        seconds +=
            gathers_a_step() *
            exposed_gather(pricer_.collective(Collective::AllGather, gathered / group.size, group),
                           stage, group);
      return seconds;
    };
    const GroupPlacement& dense = shards_.dense_shards();
    const ParameterCount all = work_.parameters(stage), trained = work_.trained(stage);
    // Of what is not trained only sharded parameters are gathered.
    const double frozen = run_.zero_stage >= 3 ? frozen_gathered_bytes(run_, profile_) : 0;
    const auto gathered = [&](double whole, double part) {
      return part * gathered_bytes(run_, profile_) + (whole - part) * frozen;
    };
    double total =
        reduced(trained.dense, gathered(all.dense, trained.dense), dense) +
        reduced(trained.expert, gathered(all.expert, trained.expert), placements_.expert_dp);
    if (run_.shard_in_node)
      total += exposed_scatter(
          pricer_.collective(Collective::AllReduce, trained.dense / dense.size * gradient_bytes,
                             placements_.across_dp),
          stage, placements_.across_dp);
    if (shares_embedding(stage))
      total += 2 * pricer_.transfer(work_.embedding.trained.dense * gradient_bytes,
                                    placements_.next_stage.back());  // of the last and the first
    parts.data_parallel = total;
    return total;
  }

  /// Where matrices have owners, but buffers no parts of theirs, all ranks get all sums
  /// (Megatron-LM, core/optimizer/layer_wise_optimizer.py).
  Collective sum_of_gradients() const {
    const bool on_all = run_.orthogonal_steps > 0 && !is_on(run_.settings.layer_wise_layout);
    return on_all ? Collective::AllReduce : Collective::ReduceScatter;
  }

  /// Does another stage hold the embedding, too: tied to the head, or for a prediction module?
  bool shares_embedding(int stage) const {
    const int last = run_.parallel.pp - 1;
    const auto holds = [&](int other) {
      return work_.holds_embedding(other) || (work_.tied && other == last);
    };
    if (last == 0 || !holds(stage)) return false;
    return stage > 0 || std::ranges::any_of(std::views::iota(1, last + 1), holds);
  }

  bool shards_gradients_alone() const { return run_.zero_stage == 2 && run_.parallel.pp == 1; }

  /// Where gradients lie in shards they are summed after each micro-batch (Rajbhandari et al. 2020,
  /// ZeRO, 5.2). PyTorch FSDP drops the parameters then, too, and gathers them again
  /// (SHARD_GRAD_OP); others gather once, after the optimizer.
  double sums_a_step() const { return shards_gradients_alone() ? run_.num_microbatches() : 1; }
  double exposed_gather(double communication, int stage, const GroupPlacement& group) const {
    return profile_.gathers_after_step ? communication
                                       : exposed_under(communication, forward_window(stage), group);
  }
  double gathers_a_step() const { return profile_.rate_limited_gathers ? sums_a_step() : 1; }

  /// In a pipeline PyTorch sums the gradients of sharded stages when the last backward of a chunk
  /// is done (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync), beside the
  /// chunks that are still to come.
  double exposed_scatter(double communication, int stage, const GroupPlacement& group) const {
    const double window = backward_window(stage);
    if (run_.zero_stage < 3 || !profile_.rate_limited_gathers || run_.parallel.pp == 1)
      return sums_a_step() * exposed_under(communication, window, group);
    const double last = communication / run_.parallel.vpp;
    return last + exposed_under(communication - last, window, group);
  }

  /// What is longer than the window is waited for; beside the rest compute is slower, since both
  /// share SMs and memory bandwidth.
  double exposed_under(double communication, double window, const GroupPlacement& group) const {
    if (!is_on(run_.settings.overlap_dp)) return communication;
    const double hidden = std::min(communication, window);
    const double share = profile_.share_follows_rate
                             ? share_beside(group, pricer_.cluster(), constants_.dp_exposed)
                             : constants_.dp_exposed;
    return communication - hidden + share * hidden;
  }

  double backward_window(int stage) const {
    double sum = 0;
    for (const ChunkWork& chunk : work_.stages[at(stage)])
      sum += seconds(chunk_time(chunk).backward);
    return sum;
  }
  double forward_window(int stage) const {
    double sum = 0;
    for (const ChunkWork& chunk : work_.stages[at(stage)])
      sum += seconds(chunk_time(chunk).forward);
    return sum;
  }

  /// Adam: per parameter reads gradient, weight and two moments, writes the last three and, beside
  /// an fp32 copy, the 16-bit weight; the gradient is read once more for its norm. In kernels of
  /// their own (torch/optim/adamw.py, _multi_tensor_adamw): decay 2, first moment 3, second 2 + 3,
  /// root 2, correction 2, epsilon 2, update 4 accesses of the state's elements, 20 instead of 7.
  /// Of Muon's matrices the same without a second moment, and what makes them orthogonal.
  double optimizer_seconds(int stage, RunBreakdown& parts) const {
    const double gradient = profile_.gradient_bytes;
    const double state = profile_.optimizer_bytes;
    const double apart = profile_.fused_optimizer ? 0 : 13 * state / 3;
    const double update = gradient + 2 * state + kHalfBytes + apart;
    const double norm = gradient + (run_.precision == RunPrecision::Fp16 ? 2 * gradient : 0);
    const ParameterCount trained = work_.trained(stage);
    const UpdatedElements updated = updated_elements(run_, work_, stage, update_shards());
    const double n = updated.others + updated.matrices;
    double bytes = n * norm;
    if (run_.updates_on_host())
      parts.offload = host_optimizer_seconds(n * gradient, n * update, n * kHalfBytes,
                                             backward_window(stage), host_);
    else
      bytes += n * update - updated.matrices * 2 * profile_.second_moment_bytes;
    bytes += (run_.zero_stage >= 2 ? n : trained.all()) * gradient;  // zeroed
    parts.optimizer = pricer_.stream(bytes) + orthogonal_seconds(stage);
    return parts.optimizer + parts.offload;
  }

  UpdateShards update_shards() const {
    if (!shards_optimizer()) return {};
    return {.dense = static_cast<double>(shards_.dense_shards().size),
            .expert = static_cast<double>(placements_.expert_dp.size)};
  }

  double orthogonal_seconds(int stage) const {
    if (run_.orthogonal_steps == 0) return 0;
    return of_owned_matrices(work_, stage, update_shards(), [&](const TrainedMatrix& matrix) {
      return seconds(pricer_.price(orthogonalization(matrix, run_)));
    });
  }

  const TrainingRun& run_;
  const ExecutionProfile& profile_;
  const RunPlacements& placements_;
  const StageWork& work_;
  const Constants& constants_;
  WorkPricer pricer_;
  HostLink host_;
  ShardPricer shards_;
  std::vector<LayerTime> layers_;
  LayerTime embedding_, head_;
};

}  // namespace

RunPrediction predict_step(const TrainingRun& run, const ExecutionProfile& profile,
                           const Cluster& cluster, const RunPlacements& placements,
                           const StageWork& work, const Constants& constants, double most_s) {
  require_invariant(run.recompute_stated, "what a run recomputes is chosen before it is priced");
  return Predictor(run, profile, cluster, placements, work, constants).run(most_s);
}

double exposed_sends(const TrainingRun& run, const ExecutionProfile& profile,
                     const Cluster& cluster, const RunPlacements& placements, const StageWork& work,
                     const Constants& constants) {
  return Predictor(run, profile, cluster, placements, work, constants).exposed_sends();
}

}  // namespace meshplan::sim
