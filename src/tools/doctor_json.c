/* The doctor's report as a JSON document. */
#include "doctor.h"

#include "config.h"
#include "peercoll.h"

#ifdef HAVE_JANSSON

    #include <jansson.h>

/* The items of a kind, as an array of objects. Texts that are empty are left out. */
static json_t *items_of(const struct doctor_report *report, enum doctor_kind kind)
{
    json_t *array = json_array();
    for (int i = 0; i < report->n; i++) {
        const struct doctor_item *item = &report->items[i];
        json_t *object;
        if (item->kind != kind)
            continue;
        object = json_pack("{s:s, s:s}", "check", item->check, kind == DOCTOR_UNCHECKED ? "why" : "seen",
                           item->seen);
        if (kind == DOCTOR_FINDING)
            json_object_set_new(object, "title", json_string(item->title));
        if (item->cost[0] != '\0')
            json_object_set_new(object, "cost", json_string(item->cost));
        if (item->remedy[0] != '\0')
            json_object_set_new(object, "do", json_string(item->remedy));
        if (kind == DOCTOR_FINDING)
            json_object_set_new(object, "times_slower", json_real(item->slower));
        json_array_append_new(array, object);
    }
    return array;
}

int doctor_print_json(FILE *to, const struct doctor_input *in, const struct doctor_report *report)
{
    char verdict[256], version[32];
    int number = 0, failed;
    json_t *document;
    PEER_Get_version(&number);
    peer_version_text(number, version, sizeof version);
    doctor_verdict(report, verdict, sizeof verdict);
    document =
        json_pack("{s:s, s:i, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "peercoll", version, "ranks", in->size,
                  "device", in->comm.device, "transport", in->comm.transport, "verdict", verdict, "findings",
                  items_of(report, DOCTOR_FINDING), "notes", items_of(report, DOCTOR_NOTE), "fine",
                  items_of(report, DOCTOR_FINE), "not_checked", items_of(report, DOCTOR_UNCHECKED));
    if (document == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for a document, or a text in it is not UTF-8");
    failed = json_dumpf(document, to, JSON_INDENT(2) | JSON_REAL_PRECISION(4));
    json_decref(document);
    if (failed || fputc('\n', to) == EOF)
        return peer_error(PEER_ERR_SYSTEM, "the document can't be written");
    return PEER_SUCCESS;
}

#else

int doctor_print_json(FILE *to, const struct doctor_input *in, const struct doctor_report *report)
{
    (void)to, (void)in, (void)report;
    return peer_error(PEER_ERR_UNSUPPORTED,
                      "--json: this peer_info was built without jansson; install it and configure again");
}

#endif
