/* Settings and data in words, written like the options. Checkpoints were made with options that are gone: their lines
 * stay, so that one with their defaults can be resumed and one with other values is refused. */
#include "trainers/kge/describe.h"
#include "trainers/common/training.h"

#include <inttypes.h>

static void kge_describe_model(const kge_model *model, FILE *lines) {
    fprintf(lines, "--model %s\n--dim %u\n--loss %s\n--margin %.9g\n--adversarial-temperature %.9g\n",
            kge_model_name(model->kind), model->dim, kge_loss_name(model->loss), (double)model->margin,
            (double)model->temperature);
    fprintf(lines, "--regularization %.9g\n--relation-regularization %.9g\n--reciprocal %s\n",
            (double)model->regularization, (double)kge_relation_n3(model), model->reciprocal ? "yes" : "no");
    fprintf(lines, "--damping %.9g\n", (double)model->damping);
}

void kge_describe(const kge_settings *settings, const kge_saved *saved, const kge_graph *graph, FILE *lines) {
    const training_settings *common = &settings->common;
    kge_describe_model(&settings->model, lines);
    fprintf(lines, "--scoring %s\n", kge_scoring_name(settings->model.scoring));
    fprintf(lines, "--batch %u\n--chunk %u\n--negatives %u\n--corrupt both\n", common->batch, settings->chunk,
            settings->negatives);
    if (settings->model.loss == KGE_SOFTMAX && settings->model.scoring == KGE_SAMPLED)
        fprintf(lines, "--sampled-softmax %s\n", settings->corrected ? "corrected" : "plain");
    training_describe(common, lines);
    if (saved->folder) fprintf(lines, "--load checksum %08" PRIx32 "\n", saved->checksum);
    if (settings->placing) placing_describe(settings->placing, lines);
    if (common->decay && common->seconds > 0)
        fprintf(lines, "--seconds %.15g (the learning rate falls until then)\n", common->seconds);
    fprintf(lines,
            "data %" PRIu32 " entities, %" PRIu32 " relations, %" PRIu64 " triples to train on, checksum %08" PRIx32
            "\n",
            graph->entities.n, graph->relations.n, graph->split[KGE_TRAIN].n, kge_graph_checksum(graph));
}
